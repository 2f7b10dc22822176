// Products of rows with a matrix of floating-point numbers: eight products in a chain from zero, whose sum is added to that
// of the columns before. So chains need not wait for each other, and every number has the same bits in any group of rows.
#pragma once
#include "products.h"

namespace {

constexpr int FLOAT_GROUP = WIDTH == 1 ? 12 : WIDTH == 2 ? 6 : 4;
constexpr int64_t FLOAT_TILE_COLUMNS = 256;

// Rows of a group side by side, column by column; columns up to a whole chain are zero.
inline void make_float_group(const float* rows, int64_t stride, int count, int64_t columns, float* place) {
    for (int64_t column = 0; column < whole_chains(columns); column++) {
        for (int row = 0; row < count; row++) *place++ = column < columns ? rows[row * stride + column] : 0.0f;
    }
}

template <class FORMAT>
NOT_INLINED void one_float_row(const Matrix& matrix, const Segment& segment, const float* row,
                                             int64_t first_panel, int64_t end_panel, Rows out, bool adds) {
    const int64_t columns = whole_chains(matrix.inputs);
    constexpr int64_t COLUMN_BYTES = FORMAT::BYTES * PANEL_ROWS;
    const int64_t panel_bytes = columns * COLUMN_BYTES + FORMAT::scales_bytes(segment.format, columns);
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const uint8_t* bytes = segment.panels + panel * panel_bytes;
        const FORMAT format(segment.format, bytes, columns);
        F sums[WIDTH];
        for (int v = 0; v < WIDTH; v++) sums[v] = splat_float(0.0f);
        for (int64_t column = 0; column < columns; column += CHAIN) {
            F chain[WIDTH];
            for (int v = 0; v < WIDTH; v++) chain[v] = splat_float(0.0f);
            typename FORMAT::Scales scales[WIDTH];
            for (int v = 0; v < WIDTH; v++) scales[v] = format.scales(column, LANES * v);
            for (int64_t line = 0; line < CHAIN * COLUMN_BYTES; line += 64) ask_for(bytes + column * COLUMN_BYTES + line);
UNROLL(8)
            for (int i = 0; i < CHAIN; i++) {
                F factor = splat_float(row[column + i]);
                for (int v = 0; v < WIDTH; v++) {
                    const uint8_t* place = bytes + (column + i) * COLUMN_BYTES + FORMAT::BYTES * LANES * v;
                    chain[v] = fma(format.numbers(place, scales[v]), factor, chain[v]);
                }
            }
            for (int v = 0; v < WIDTH; v++) sums[v] = add(sums[v], chain[v]);
        }
        place_of(matrix, segment, panel, out, 0, adds).put(sums);
    }
}

// Adds the products of N rows with `columns` columns of a panel, as floats, to `sums`.
template <int N>
NOT_INLINED void multiply_columns(const float* panel, int64_t columns, const float* rows, float* sums,
                                                int64_t sums_stride) {
    for (int64_t column = 0; column < columns; column += CHAIN) {
        F chain[N][WIDTH];
        for (int n = 0; n < N; n++) {
            for (int v = 0; v < WIDTH; v++) chain[n][v] = splat_float(0.0f);
        }
        for (int i = 0; i < CHAIN; i++) {
            F numbers[WIDTH];
            for (int v = 0; v < WIDTH; v++) numbers[v] = load_floats(panel + (column + i) * PANEL_ROWS + LANES * v);
UNROLL(16)
            for (int n = 0; n < N; n++) {
                F factor = splat_float(rows[(column + i) * N + n]);
                for (int v = 0; v < WIDTH; v++) chain[n][v] = fma(numbers[v], factor, chain[n][v]);
            }
        }
        for (int n = 0; n < N; n++) {
            for (int v = 0; v < WIDTH; v++) {
                float* place = sums + n * sums_stride + LANES * v;
                store_floats(place, add(load_floats(place), chain[n][v]));
            }
        }
    }
}

inline void multiply_float_group(int rows, const float* panel, int64_t columns, const float* group, float* sums,
                                 int64_t stride) {
    switch (rows) {
#define GROUP_OF(N)                                                                                 \
    case N:                                                                                         \
        if constexpr (N <= FLOAT_GROUP) multiply_columns<N>(panel, columns, group, sums, stride);   \
        break;
        GROUP_OF(1) GROUP_OF(2) GROUP_OF(3) GROUP_OF(4) GROUP_OF(6) GROUP_OF(8) GROUP_OF(12)
#undef GROUP_OF
    }
}

template <class FORMAT>
void several_float_rows(const Matrix& matrix, const Segment& segment, const float* prepared, int64_t rows,
                        int64_t first_panel, int64_t end_panel, Rows out, bool adds, uint8_t* scratch) {
    const int64_t columns = whole_chains(matrix.inputs);
    constexpr int64_t COLUMN_BYTES = FORMAT::BYTES * PANEL_ROWS;
    const int64_t panel_bytes = columns * COLUMN_BYTES + FORMAT::scales_bytes(segment.format, columns);
    float* unpacked = reinterpret_cast<float*>(scratch);
    float* sums = unpacked + FLOAT_TILE_COLUMNS * PANEL_ROWS;
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const uint8_t* bytes = segment.panels + panel * panel_bytes;
        const FORMAT format(segment.format, bytes, columns);
        for (int64_t first_row = 0; first_row < rows; first_row += MOST_SUMS) {
            const int64_t own_rows = rows - first_row < MOST_SUMS ? rows - first_row : MOST_SUMS;
            std::memset(sums, 0, sizeof(float) * own_rows * PANEL_ROWS);
            for (int64_t first = 0; first < columns; first += FLOAT_TILE_COLUMNS) {
                const int64_t count = columns - first < FLOAT_TILE_COLUMNS ? columns - first : FLOAT_TILE_COLUMNS;
                for (int64_t chain = 0; chain < count; chain += CHAIN) {
                    for (int v = 0; v < WIDTH; v++) {
                        const typename FORMAT::Scales scales = format.scales(first + chain, LANES * v);
                        for (int64_t i = chain * PANEL_ROWS + LANES * v; i < (chain + CHAIN) * PANEL_ROWS; i += PANEL_ROWS) {
                            const uint8_t* place = bytes + first * COLUMN_BYTES + FORMAT::BYTES * i;
                            store_floats(unpacked + i, format.numbers(place, scales));
                        }
                    }
                }
                for (int64_t row = 0, size = 0; row < own_rows; row += size) {
                    size = group_rows(static_cast<int>(own_rows - row), FLOAT_GROUP);
                    const float* group = prepared + (first_row + row) * columns + first * size;
                    multiply_float_group(static_cast<int>(size), unpacked, count, group, sums + row * PANEL_ROWS, PANEL_ROWS);
                }
            }
            for (int64_t row = 0; row < own_rows; row++) {
                F own[WIDTH];
                for (int v = 0; v < WIDTH; v++) own[v] = load_floats(sums + row * PANEL_ROWS + LANES * v);
                place_of(matrix, segment, panel, out, first_row + row, adds).put(own);
            }
        }
    }
}

template <class FORMAT>
void multiply_floats(const Matrix& matrix, const Segment& segment, const uint8_t* prepared, int64_t rows, int64_t first_panel,
                     int64_t end_panel, Rows out, bool adds, uint8_t* scratch) {
    const float* numbers = reinterpret_cast<const float*>(prepared);
    if (rows == 1) {
        one_float_row<FORMAT>(matrix, segment, numbers, first_panel, end_panel, out, adds);
    } else {
        several_float_rows<FORMAT>(matrix, segment, numbers, rows, first_panel, end_panel, out, adds, scratch);
    }
}

}  // namespace
