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
    const int32_t* order;  // which input each column belongs to; null: they are in the inputs' order
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

// The keys and values of one layer. A tile has 16 positions of one key-value head. With `value_from` values are the numbers
// of keys from that one on, and not kept beside them; 0: they are.
struct Pages {
    uint8_t* tiles;
    int64_t tile_bytes;
    int32_t kv_heads, head_dim, value_dim, storage;
    int32_t value_from, padding;
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
    int32_t chunk;   // in its place: a row sees positions from the last multiple of it on; 0: none
    int32_t padding;
};

enum Activation { SILU, GELU_TANH, CLAMPED_SWIGLU, SIGMOID_GATE };

constexpr int MOST_TAPS = 64;

// Neighbouring rows of one sequence, the slot whose state they go on from, -1: none, and the one that they leave theirs in.
struct StateRun {
    int32_t first_row, rows;
    int32_t source, target;
};

// A causal convolution of each channel of some rows; a state begins with the last taps - 1 rows of it. What it gets of a row are
// the numbers from `column` on, those times the ones from `times_before` on; what it makes of these goes through SiLU if
// `silu`, is multiplied by those from `times_after` on, and lies from `out_column` on. Either column may be -1: none.
struct Convolution {
    const float* weight;  // [taps, channels], the last one is that of the row itself
    const float* bias;    // or null
    int32_t channels, taps;
    int32_t column, times_before, times_after, out_column;
    int32_t silu, padding;
};

constexpr int DELTA_COLUMNS = 32;  // of the state of a delta net's head that go together

// A gated delta net between the convolution of its rows and its second matrix. A row has the queries of all key heads, their keys,
// values and a gate of all value heads, then a number each of how much these write and of how much they forget; queries and keys
// have been normed. The states of heads are behind the first `state_offset` numbers of a slot.
struct DeltaNet {
    const float* decay;      // [value_heads], below 0
    const float* step_bias;  // [value_heads]
    const float* norm;       // [value_dim]
    int64_t state_offset;
    int32_t value_heads, key_heads, key_dim, value_dim;
    int32_t tiled;  // whether value head h reads key head h mod key_heads; otherwise neighbours read the same
    float epsilon;
};

// Mamba 2 between the convolution of its rows and the norm of what they read. A row has the gates of all heads, their x, of all
// groups what moves states and what reads them, and a number a head of how far it steps. A state begins behind the first
// `state_offset` numbers of a slot.
struct Mamba2 {
    const float* decay;      // [heads], below 0
    const float* skip;       // [heads]
    const float* step_bias;  // [heads]
    int64_t state_offset;
    int32_t heads, head_dim, groups, state_dim;
};

enum Format {
    FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q5_0, FORMAT_Q5_1, FORMAT_Q8_0, FORMAT_Q2_K,
    FORMAT_Q3_K, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_NL, FORMAT_IQ4_XS, FORMAT_MXFP4,
    FORMAT_F8_E4M3, FORMAT_F8_E5M2, FORMAT_INT4, FORMAT_INT8, FORMATS  // these have scales of groups of columns
};

enum Scale { SCALE_F16, SCALE_BF16, SCALE_F32 };

// The number of a format with scales of groups says which: the format in the lowest byte, the kind of its scales in four bits,
// then how many blocks of 32 columns a group has, 0 for a group of all columns.
struct Grouping {
    int32_t number;

    int format() const { return number & 255; }
    int scale() const { return number >> 8 & 15; }
    int64_t blocks() const { return number >> 12; }
    int scale_bytes() const { return scale() == SCALE_F32 ? 4 : 2; }
    int group_bytes() const { return scale_bytes() + (format() >= FORMAT_INT4 ? 1 : 0); }  // of a row: integers have a zero
    int64_t group_of(int64_t block) const {  // in 32 bits, whose division is much faster
        return blocks() ? static_cast<uint32_t>(block) / static_cast<uint32_t>(blocks()) : 0;
    }
    int64_t groups(int64_t columns) const { return group_of((columns + 31) / 32 - 1) + 1; }
};

inline int format_of(int32_t number) { return Grouping{number}.format(); }

// Everything that is written once and compiled for each instruction set.
struct Kernels {
    const char* name;
    int64_t (*prepared_bytes)(bool floats, int digits, int64_t rows, int64_t columns);
    int (*group_rows)(bool floats, int digits, int64_t left);
    void (*prepare)(bool floats, int digits, Rows in, const int32_t* order, int64_t first_row, int64_t rows, int64_t columns,
                    uint8_t* place);
    void (*multiply)(const Matrix& matrix, const Segment& segment, int digits, const uint8_t* prepared, int64_t rows,
                     int64_t first_panel, int64_t end_panel, Rows out, bool adds, uint8_t* scratch);
    void (*unpack_row)(int format, const uint8_t* panel, int64_t columns, int row, float* out);
    void (*norm)(const float* in, float* out, const float* weight, int64_t columns, float epsilon);
    void (*turn)(float* head, const float* turns, int64_t columns);
    void (*gate)(const float* gate, const float* up, float* out, int64_t columns, int kind);
    void (*cap)(float* numbers, int64_t columns, float cap);
    void (*keep)(const Pages& pages, int head, int64_t tile, int place, const float* key, const float* value);
    void (*attend)(const Pages& pages, const AttentionForm& form, const StepRow* rows, int row_count, int kv_head,
                   Rows queries, Rows out, uint8_t* scratch);
    void (*convolve)(const Convolution& convolution, Rows in, Rows out, const StateRun* runs, int64_t run_count, float* states,
                     int64_t slot_numbers, int64_t first_channel, int64_t end_channel);
    void (*delta_head)(const DeltaNet& net, int head, Rows in, Rows out, const StateRun* runs, int64_t run_count, float* states,
                       int64_t slot_numbers, uint8_t* scratch);
    void (*mamba_head)(const Mamba2& layer, int head, Rows in, Rows out, const StateRun* runs, int64_t run_count, float* states,
                       int64_t slot_numbers);
};

constexpr int64_t SCRATCH_BYTES = 1 << 19;  // of each thread, for products; attention may need more

}  // namespace layerline
