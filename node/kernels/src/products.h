// Products of rows with a matrix in panels.
//
// One row is multiplied with each block as it is unpacked (one_row.h). Several rows meet a panel that was unpacked once, into
// cells in the cache. Either way a number of the product is the sum over the blocks of the columns, in their order, and so has
// the same bits whatever else is multiplied with it.
#pragma once
#include <vector>

#include "cells.h"
#if defined(LAYERLINE_AVX2)
#include "byte_cells.h"
#endif

namespace {

// Adds the products of N rows with neighbouring cells of a panel to `sums`, 16 of each row.
template <int N, int DIGITS, int PARTS, bool MINIMA, int STEPS>
NOT_INLINED void multiply_cells(const CachedCell<PARTS, MINIMA, STEPS>* cells, int count, CellNumbers numbers,
                                const RowBlock<DIGITS>* rows, float* sums, int64_t sums_stride) {
    constexpr int PLANES = planes(DIGITS), OWN = STEPS / PARTS;
    for (int c = 0; c < count; c++, rows += N) {
        const CachedCell<PARTS, MINIMA, STEPS>& cell = cells[c];
UNROLL(2)
        for (int part = 0; part < PARTS; part++) {
            I products[N][PLANES][WIDTH];
UNROLL(16)
            for (int n = 0; n < N; n++) {
                for (int plane = 0; plane < PLANES; plane++) {
                    const int32_t* halves = rows[n].sums[plane];
                    I start = splat(offset_taken(numbers.offset, halves[part], PARTS == 1 ? halves[1] : 0));
                    for (int v = 0; v < WIDTH; v++) products[n][plane][v] = start;
                }
            }
            for (int i = part * OWN; i < (part + 1) * OWN; i++) {
                I weights[WIDTH];
                for (int v = 0; v < WIDTH; v++) weights[v] = load(cell.steps[i] + LANES * v);
UNROLL(16)
                for (int n = 0; n < N; n++) {
                    for (int plane = 0; plane < PLANES; plane++) {
                        I digits = splat_word(rows[n].digits + 4 * (STEPS * plane + i));
                        for (int v = 0; v < WIDTH; v++) {
                            products[n][plane][v] = step(products[n][plane][v], weights[v], digits);
                            in_order(products[n][plane][v]);
                        }
                    }
                }
            }
UNROLL(16)
            for (int n = 0; n < N; n++) {
                for (int v = 0; v < WIDTH; v++) {
                    I own[PLANES];
                    for (int plane = 0; plane < PLANES; plane++) own[plane] = products[n][plane][v];
                    add_part(cell, part, v, rows[n], combined<DIGITS>(own), sums + n * sums_stride + LANES * v);
                }
            }
        }
    }
}

#if defined(LAYERLINE_AVX2)
template <int N, int PARTS, bool MINIMA>
void multiply_cells(const CachedCell<PARTS, MINIMA, 8>* cells, int count, CellNumbers numbers, const RowBlock<1>* rows,
                    float* sums, int64_t stride) {
    if (numbers.is_signed) return multiply_byte_cells<N, true>(cells, count, numbers, rows, sums, stride);
    multiply_byte_cells<N, false>(cells, count, numbers, rows, sums, stride);
}
#endif

template <int DIGITS, class CELL>
inline void multiply_group(int rows, const CELL* cells, int count, CellNumbers numbers, const RowBlock<DIGITS>* group,
                           float* sums, int64_t stride) {
    constexpr int MOST = most_rows(DIGITS);
    switch (rows) {
#define GROUP_OF(N)                                                                              \
    case N:                                                                                      \
        if constexpr (N <= MOST) multiply_cells<N>(cells, count, numbers, group, sums, stride);  \
        break;
        GROUP_OF(1) GROUP_OF(2) GROUP_OF(3) GROUP_OF(4) GROUP_OF(6) GROUP_OF(8) GROUP_OF(12) GROUP_OF(16)
#undef GROUP_OF
    }
}

// Rows of a step are multiplied so many at a time, so that their sums with a tile of panels stay in the cache.
constexpr int FEW_ROWS = 16, FEW_CELLS = 8;  // so few rows are multiplied with cells that are still in the first cache
constexpr int MOST_SUMS = 480;  // a multiple of every size of a group

// What several rows need to know of a format besides the kind of its cells.
template <class CELL> struct Unpacked {
    void (*unpack)(int32_t number, const uint8_t* panel, int64_t columns, int64_t first_block, int64_t end_block, CELL*);
    int64_t panel_bytes;
    int cells;  // of a block
    CellNumbers numbers;
};

template <int DIGITS, class CELL>
void several_rows(const Unpacked<CELL>& format, const Matrix& matrix, const Segment& segment,
                  const RowBlock<DIGITS>* prepared, int64_t rows, int64_t first_panel, int64_t end_panel, Rows out, bool adds,
                  uint8_t* scratch) {
    const bool few = rows <= FEW_ROWS;
    const int chunk_blocks = (few ? FEW_CELLS : CHUNK_CELLS) / format.cells, tile_panels = few ? 1 : TILE_PANELS;
    const int64_t row_blocks = matrix.inputs / BLOCK, blocks = row_blocks / format.cells;
    CELL* cells = reinterpret_cast<CELL*>(scratch);
    float* sums = reinterpret_cast<float*>(scratch + TILE_PANELS * CHUNK_CELLS * sizeof(CELL));
    constexpr int64_t STRIDE = TILE_PANELS * PANEL_ROWS;
    for (int64_t tile = first_panel; tile < end_panel; tile += tile_panels) {
        const int panels = static_cast<int>(end_panel - tile < tile_panels ? end_panel - tile : tile_panels);
        for (int64_t first_row = 0; first_row < rows; first_row += MOST_SUMS) {
            const int64_t own_rows = rows - first_row < MOST_SUMS ? rows - first_row : MOST_SUMS;
            std::memset(sums, 0, sizeof(float) * own_rows * STRIDE);
            for (int64_t first = 0; first < blocks; first += chunk_blocks) {
                const int64_t end = first + chunk_blocks < blocks ? first + chunk_blocks : blocks;
                const int count = static_cast<int>(end - first) * format.cells;
                for (int p = 0; p < panels; p++) {
                    const uint8_t* panel = segment.panels + (tile + p) * format.panel_bytes;
                    format.unpack(segment.format, panel, matrix.inputs, first, end, cells + p * CHUNK_CELLS);
                }
                for (int64_t row = 0, size = 0; row < own_rows; row += size) {
                    size = group_rows(static_cast<int>(own_rows - row), most_rows(DIGITS));
                    const RowBlock<DIGITS>* group = prepared + (first_row + row) * row_blocks + first * format.cells * size;
                    for (int p = 0; p < panels; p++) {
                        multiply_group<DIGITS>(static_cast<int>(size), cells + p * CHUNK_CELLS, count, format.numbers, group,
                                               sums + row * STRIDE + PANEL_ROWS * p, STRIDE);
                    }
                }
            }
            for (int64_t row = 0; row < own_rows; row++) {
                for (int p = 0; p < panels; p++) {
                    F own[WIDTH];
                    for (int v = 0; v < WIDTH; v++) own[v] = load_floats(sums + row * STRIDE + PANEL_ROWS * p + LANES * v);
                    place_of(matrix, segment, tile + p, out, first_row + row, adds).put(own);
                }
            }
        }
    }
}

template <class FORMAT, int DIGITS>
inline void multiply_row(const Matrix& matrix, const Segment& segment, const RowBlock<DIGITS>* row, int64_t first_panel,
                         int64_t end_panel, Rows out, bool adds) {
#if defined(LAYERLINE_AVX2)
    if constexpr (DIGITS == 2 && multiplied_as_bytes<FORMAT>()) {
        static thread_local std::vector<ByteBlock> bytes;
        bytes.resize(static_cast<size_t>(matrix.inputs / BLOCK));
        for (size_t block = 0; block < bytes.size(); block++) make_byte_block(row[block], bytes[block]);
        return one_row<FORMAT>(matrix, segment, bytes.data(), first_panel, end_panel, out, adds);
    }
#endif
    one_row<FORMAT>(matrix, segment, row, first_panel, end_panel, out, adds);
}

template <class FORMAT, int DIGITS>
void multiply_format(const Matrix& matrix, const Segment& segment, const uint8_t* prepared, int64_t rows, int64_t first_panel,
                     int64_t end_panel, Rows out, bool adds, uint8_t* scratch) {
    const RowBlock<DIGITS>* blocks = reinterpret_cast<const RowBlock<DIGITS>*>(prepared);
    if (rows == 1) return multiply_row<FORMAT, DIGITS>(matrix, segment, blocks, first_panel, end_panel, out, adds);
    constexpr int STEPS = steps(DIGITS);
    constexpr CellNumbers NUMBERS = {whole_offset<FORMAT>(), FORMAT::MOST, FORMAT::SIGNED};
    const Unpacked<CachedCell<FORMAT::PARTS, FORMAT::MINIMA, STEPS>> format = {
        unpack<FORMAT, STEPS>, panel_bytes<FORMAT>(segment.format, matrix.inputs), FORMAT::CELLS, NUMBERS};
    several_rows<DIGITS>(format, matrix, segment, blocks, rows, first_panel, end_panel, out, adds, scratch);
}

}  // namespace
