// What this library offers to Python: plain C, no exception leaves it.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace layerline {

bool is_float(int format);
int64_t row_bytes(int format, int64_t columns);
int64_t panel_bytes(int format, int64_t columns);

// Puts stored rows into a panel, the first as its row `first`; there are at most 16 - first.
void put_rows(int format, const uint8_t* const* stored, int64_t columns, int first, int count, uint8_t* panel);

// The kernels of that name, or null if this library has none or this processor cannot run them.
const Kernels* kernels_named(const char* name);
const char* instruction_sets();

// One operation of a program, on numbered buffers of rows. Which fields mean what is said at each kind.
enum OperationKind {
    NORM,      // in -> out, by `weight` [size], epsilon `number`
    HEAD_NORM, // in place on `out`: `count` heads of `size` numbers from head `index` on, each by `weight` [size]
    PRODUCT,   // in -> out, by `matrix`; added to what is there if `flag`
    TURN,      // in place on `out`: `count` heads of `size` numbers, by the step's turns of number `index`
    ATTEND,    // keeps keys and values of `in` (queries, keys, values side by side) and reads, -> out; layer number `index`
    GATE,      // in (gate, then up, `size` each) -> out
    ADD,       // out += in, `size` numbers of each row
};

struct Operation {
    int32_t kind, in, out, index;
    int32_t count, flag;
    int64_t size;
    float number;
    int32_t padding;
    const void* weight;
    const Matrix* matrix;
};

// What one step brings: its rows, the spans they are in, and of each rotation the turns of its rows.
struct StepSpan {
    int32_t first_row, rows;
    int32_t first_position;      // of the first tile that the sequence still has
    int32_t start;               // the position of its first row
    const int32_t* tiles;        // of its positions, from first_position on
};

struct Step {
    int64_t rows;
    int64_t span_count;
    const StepSpan* spans;
    const float* const* turns;   // of each rotation [rows][size]
};

struct Layer {
    Pages pages;
    AttentionForm form;
};

// What a program works with: buffers, the layers' pages, a place for prepared rows.
struct Work {
    const Rows* buffers;
    const Layer* layers;
    uint8_t* prepared;           // of one product's rows
    uint8_t* prepared_floats;
    int32_t digits;
    int32_t padding;
};

}  // namespace layerline
