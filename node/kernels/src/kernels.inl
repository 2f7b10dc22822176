// The kernels of one instruction set: included by one file for each, which says which one.
#include "attention.h"
#include "convolution.h"
#include "delta_net.h"
#include "float_products.h"
#include "kernels.h"
#include "mamba2.h"
#include "products.h"
#include "rows.h"

namespace {

using namespace layerline;

int64_t prepared_bytes(bool floats, int digits, int64_t rows, int64_t columns) {
    if (floats) return rows * whole_chains(columns) * 4;
    const int64_t blocks = rows * (columns / BLOCK);
    return blocks * static_cast<int64_t>(digits == 1 ? sizeof(RowBlock<1>) : digits == 2 ? sizeof(RowBlock<2>) : sizeof(RowBlock<3>));
}

int rows_of_group(bool floats, int digits, int64_t left) {
    return group_rows(static_cast<int>(left), floats ? FLOAT_GROUP : most_rows(digits));
}

// One group of rows, which begins at `first_row`; its inputs in `order` where they are made into integers.
void prepare(bool floats, int digits, Rows in, const int32_t* order, int64_t first_row, int64_t rows, int64_t columns,
             uint8_t* place) {
    const float* first = in.data + first_row * in.stride;
    const int count = static_cast<int>(rows);
    place += prepared_bytes(floats, digits, first_row, columns);
    if (floats) return make_float_group(first, in.stride, count, columns, reinterpret_cast<float*>(place));
    if (digits == 1) return make_group<1>(first, in.stride, order, count, columns, place);
    if (digits == 2) return make_group<2>(first, in.stride, order, count, columns, place);
    make_group<3>(first, in.stride, order, count, columns, place);
}

void multiply(const Matrix& matrix, const Segment& segment, int digits, const uint8_t* prepared, int64_t rows,
              int64_t first_panel, int64_t end_panel, Rows out, bool adds, uint8_t* scratch) {
#define ARGUMENTS matrix, segment, prepared, rows, first_panel, end_panel, out, adds, scratch
#define FLOATS(NAME) case FORMAT_##NAME: return multiply_floats<NAME>(ARGUMENTS);
#define DIGITS(NAME)                                                   \
    case FORMAT_##NAME:                                                \
        if (digits == 1) return multiply_format<NAME, 1>(ARGUMENTS);   \
        if (digits == 2) return multiply_format<NAME, 2>(ARGUMENTS);   \
        return multiply_format<NAME, 3>(ARGUMENTS);
    switch (format_of(segment.format)) {
        FLOATS(F32) FLOATS(F16) FLOATS(BF16) FLOATS(F8_E4M3) FLOATS(F8_E5M2)
        DIGITS(Q4_0) DIGITS(Q4_1) DIGITS(Q5_0) DIGITS(Q5_1) DIGITS(Q8_0) DIGITS(Q2_K) DIGITS(Q3_K) DIGITS(Q4_K)
        DIGITS(Q5_K) DIGITS(Q6_K) DIGITS(IQ4_NL) DIGITS(IQ4_XS) DIGITS(MXFP4) DIGITS(INT4) DIGITS(INT8)
    }
#undef DIGITS
#undef FLOATS
#undef ARGUMENTS
}

template <class FORMAT> void unpack_floats(int number, const uint8_t* panel, int64_t columns, int row, float* out) {
    float lanes[LANES];
    const FORMAT format(number, panel, columns);
    for (int64_t column = 0; column < columns; column++) {
        const uint8_t* place = panel + (column * PANEL_ROWS + row / LANES * LANES) * FORMAT::BYTES;
        store_floats(lanes, format.numbers(place, format.scales(column, row / LANES * LANES)));
        out[column] = lanes[row % LANES];
    }
}

// As `gguf` does it: scale * integer, rounded, then the least number added.
template <class FORMAT> void unpack_cells(int number, const uint8_t* panel, int64_t columns, int row, float* out) {
    constexpr int OWN = BLOCK / FORMAT::PARTS;
    float lanes[LANES];
    for (int64_t b = 0; b < columns / (BLOCK * FORMAT::CELLS); b++) {
        Block block = block_of<FORMAT>(number, panel, columns, b, row / LANES * LANES);
        typename FORMAT::State state = FORMAT::begin(block);
        for (int c = 0; c < FORMAT::CELLS; c++) {
            Scales scales;
            FORMAT::scales(block, state, c, scales);
            for (int column = 0; column < BLOCK; column++, out++) {
                I word = FORMAT::word(block, state, c, column / 4);
                F own = FORMAT::SIGNED ? signed_byte_number(word, column % 4) : byte_number(word, column % 4);
                own = mul(sub(own, splat_float(FORMAT::OFFSET)), scales.scale[column / OWN]);
                if (FORMAT::MINIMA) own = add(own, scales.least[column / OWN]);
                store_floats(lanes, own);
                *out = lanes[row % LANES];
            }
        }
    }
}

// The numbers of one row of a panel.
void unpack_row(int format, const uint8_t* panel, int64_t columns, int row, float* out) {
#define FLOATS(NAME) case FORMAT_##NAME: return unpack_floats<NAME>(format, panel, columns, row, out);
#define CELLS(NAME) case FORMAT_##NAME: return unpack_cells<NAME>(format, panel, columns, row, out);
    switch (format_of(format)) {
        FLOATS(F32) FLOATS(F16) FLOATS(BF16) FLOATS(F8_E4M3) FLOATS(F8_E5M2)
        CELLS(Q4_0) CELLS(Q4_1) CELLS(Q5_0) CELLS(Q5_1) CELLS(Q8_0) CELLS(Q2_K) CELLS(Q3_K) CELLS(Q4_K) CELLS(Q5_K)
        CELLS(Q6_K) CELLS(IQ4_NL) CELLS(IQ4_XS) CELLS(MXFP4) CELLS(INT4) CELLS(INT8)
    }
#undef CELLS
#undef FLOATS
}

constexpr Kernels KERNELS = {
    LAYERLINE_NAME, prepared_bytes, rows_of_group, prepare, multiply, unpack_row, norm_row, turn_head, gate_row, cap_row, keep_row,
    attend_rows, convolve, delta_head, mamba_head,
};

}  // namespace
