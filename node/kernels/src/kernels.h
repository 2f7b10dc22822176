// What a library of one instruction set offers to the rest of this library.
#pragma once
#include <cstdint>

namespace layerline {

// Some rows of a matrix that are held in one format, in panels of 16 rows; the last one may be padded.
struct Segment {
    const uint8_t* panels;
    int32_t format;
    int32_t rows;
    int64_t first_output;
};

// A matrix: its segments, one below the other, and perhaps a bias of each output.
struct Matrix {
    const Segment* segments;
    const float* bias;
    int64_t inputs;
    int32_t segment_count;
    int32_t padding;
};

// Rows of floats, `stride` apart.
struct Rows {
    float* data;
    int64_t stride;
};

// The keys and values of one layer. A tile has 16 positions of one key-value head.
struct Pages {
    uint8_t* tiles;
    int64_t tile_bytes;
    int32_t kv_heads, head_dim, value_dim, storage;
};

// One row of a step: its position, and the tiles of its sequence from the one of position `first_position` on.
struct StepRow {
    const int32_t* tiles;
    int32_t position;
    int32_t first_position;
};

struct AttentionForm {
    const float* sinks;  // of each query head, or null
    float scale;
    float soft_cap;  // 0: none
    int32_t heads;
    int32_t window;  // 0: none
};

enum Format {
    FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q5_0, FORMAT_Q5_1, FORMAT_Q8_0, FORMAT_Q2_K,
    FORMAT_Q3_K, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_NL, FORMAT_IQ4_XS, FORMAT_MXFP4, FORMATS
};

// Everything that is written once and compiled for each instruction set.
struct Kernels {
    const char* name;
    int64_t (*prepared_bytes)(bool floats, int digits, int64_t rows, int64_t columns);
    int (*group_rows)(bool floats, int digits, int64_t left);
    void (*prepare)(bool floats, int digits, Rows in, int64_t first_row, int64_t rows, int64_t columns, uint8_t* place);
    void (*multiply)(const Matrix& matrix, const Segment& segment, int digits, const uint8_t* prepared, int64_t rows,
                     int64_t first_panel, int64_t end_panel, Rows out, bool adds, uint8_t* scratch);
    void (*unpack_row)(int format, const uint8_t* panel, int64_t columns, int row, float* out);
    void (*norm)(const float* in, float* out, const float* weight, int64_t columns, float epsilon);
    void (*turn)(float* head, const float* turns, int64_t columns);
    void (*gate)(const float* gate, const float* up, float* out, int64_t columns, int kind);
    void (*keep)(const Pages& pages, int head, int64_t tile, int place, const float* key, const float* value);
    void (*attend)(const Pages& pages, const AttentionForm& form, const StepRow* rows, int row_count, int kv_head,
                   Rows queries, Rows out, uint8_t* scratch);
};

constexpr int64_t SCRATCH_BYTES = 1 << 19;  // of each thread, for products; attention may need more

}  // namespace layerline
