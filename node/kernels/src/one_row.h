// The product of one row with a matrix in panels: each block is multiplied as it is unpacked in registers, which reads memory
// as fast as it can be read. Also what this has in common with several rows.
#pragma once
#include "digits.h"
#include "floats.h"
#include "grouped_formats.h"
#include "kernels.h"
#if defined(LAYERLINE_AVX2)
#include "byte_products.h"
#endif

namespace {

using layerline::Grouping;
using layerline::Matrix;
using layerline::Rows;
using layerline::Segment;

constexpr int64_t AHEAD = 8192;    // bytes of a matrix that are asked for before they are needed
constexpr int TILE_PANELS = 4;     // that are unpacked together, so that a group of rows is read once for all of them
constexpr int CHUNK_CELLS = 32;    // of each of them

inline void ask_for(const uint8_t* p) {
#if defined(__GNUC__)
    __builtin_prefetch(p + AHEAD);
#else
    (void)p;
#endif
}

template <class FORMAT> inline int64_t panel_bytes(int32_t number, int64_t columns) {
    const int64_t bytes = columns / (BLOCK * FORMAT::CELLS) * (64 * FORMAT::WORDS + 16 * FORMAT::SMALL);
    const Grouping grouping{number};
    return FORMAT::SMALL ? bytes : bytes + grouping.groups(columns) * PANEL_ROWS * grouping.group_bytes();
}
template <class FORMAT>
inline Block block_of(int32_t number, const uint8_t* panel, int64_t columns, int64_t block, int first_row) {
    const uint8_t* small = panel + columns / (BLOCK * FORMAT::CELLS) * 64 * FORMAT::WORDS;
    const Grouping grouping{number};
    small += FORMAT::SMALL ? block * 16 * FORMAT::SMALL : grouping.group_of(block) * PANEL_ROWS * grouping.group_bytes();
    return {panel + block * 64 * FORMAT::WORDS, small, first_row, number};
}

// Where the products of one row with a panel go.
struct Place {
    float* out;
    const float* bias;  // null: none
    bool adds;          // to what is there
    int outputs;        // 16 or, of the last panel, fewer

    void put(const F sums[WIDTH]) const {
        float numbers[PANEL_ROWS];
        if (outputs == PANEL_ROWS) {
            for (int v = 0; v < WIDTH; v++) store_floats(out + LANES * v, finished(sums[v], out + LANES * v, LANES * v));
            return;
        }
        for (int v = 0; v < WIDTH; v++) store_floats(numbers + LANES * v, sums[v]);
        for (int i = 0; i < outputs; i++) {
            float number = bias ? numbers[i] + bias[i] : numbers[i];
            out[i] = adds ? out[i] + number : number;
        }
    }

  private:
    F finished(F sum, const float* before, int first) const {
        if (bias) sum = add(sum, load_floats(bias + first));
        return adds ? add(load_floats(before), sum) : sum;
    }
};

inline Place place_of(const Matrix& matrix, const Segment& segment, int64_t panel, Rows out, int64_t row, bool adds) {
    int64_t first = segment.first_output + panel * PANEL_ROWS, left = segment.rows - panel * PANEL_ROWS;
    const float* bias = matrix.bias ? matrix.bias + first : nullptr;
    return {out.data + row * out.stride + first, bias, adds, left < PANEL_ROWS ? static_cast<int>(left) : PANEL_ROWS};
}

template <class FORMAT> constexpr int whole_offset() { return FORMAT::OFFSET + (FORMAT::SIGNED ? SIGNED_OFFSET : 0); }

// The integer products of one part of a cell with a row, as floats. All 16 rows of the panel go together, so that each of the
// row's digits is read once for them.
template <class FORMAT, int DIGITS>
inline void part_products(const Block blocks[WIDTH], const typename FORMAT::State states[WIDTH], int cell, int part,
                          const RowBlock<DIGITS>& row, F out[WIDTH]) {
#if defined(LAYERLINE_AVX2)
    if constexpr (DIGITS == 1) {
        const uint8_t* const planes[1] = {row.digits};
        return plane_products<FORMAT>(blocks, states, cell, part, planes, row.sums[0], out);
    }
#endif
    constexpr int PLANES = planes(DIGITS), PARTS = FORMAT::PARTS, OFFSET = whole_offset<FORMAT>(), STEPS = steps(DIGITS);
    constexpr int WORD_STEPS = word_steps(DIGITS);
    constexpr int CHAINS = WIDTH * PLANES < 4 ? 2 : 1;  // of additions, each of which waits for the one before
    I sums[WIDTH][PLANES][CHAINS];
UNROLL(4)
    for (int v = 0; v < WIDTH; v++) {
UNROLL(3)
        for (int plane = 0; plane < PLANES; plane++) {
            const int32_t* halves = row.sums[plane];
            sums[v][plane][0] = OFFSET ? splat(offset_taken(OFFSET, halves[part], PARTS == 1 ? halves[1] : 0)) : splat(0);
            sums[v][plane][CHAINS - 1] = CHAINS == 1 ? sums[v][plane][0] : splat(0);
        }
    }
UNROLL(8)
    for (int i = 0; i < 8 / PARTS; i++) {
        const int word = part * (8 / PARTS) + i;
        I steps[WIDTH][WORD_STEPS];
UNROLL(4)
        for (int v = 0; v < WIDTH; v++) to_steps<FORMAT::SIGNED>(FORMAT::word(blocks[v], states[v], cell, word), steps[v]);
UNROLL(2)
        for (int s = 0; s < WORD_STEPS; s++) {
UNROLL(3)
            for (int plane = 0; plane < PLANES; plane++) {
                const I digits = splat_word(row.digits + 4 * (STEPS * plane + WORD_STEPS * word + s));
UNROLL(4)
                for (int v = 0; v < WIDTH; v++) {
                    I& sum = sums[v][plane][(WORD_STEPS == 1 ? i : s) % CHAINS];
                    sum = step(sum, steps[v][s], digits);
                    in_order(sum);
                }
            }
        }
    }
UNROLL(4)
    for (int v = 0; v < WIDTH; v++) {
        I whole[PLANES];
UNROLL(3)
        for (int plane = 0; plane < PLANES; plane++) {
            whole[plane] = CHAINS == 1 ? sums[v][plane][0] : plus(sums[v][plane][0], sums[v][plane][CHAINS - 1]);
        }
        out[v] = combined<DIGITS>(whole);
    }
}

// `ROW` is a block of the row, in one of the forms that `part_products` takes.
template <class FORMAT, class ROW>
NOT_INLINED void one_row(const Matrix& matrix, const Segment& segment, const ROW* row, int64_t first_panel, int64_t end_panel,
                         Rows out, bool adds) {
    const int64_t block_count = matrix.inputs / (BLOCK * FORMAT::CELLS);
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const uint8_t* bytes = segment.panels + panel * panel_bytes<FORMAT>(segment.format, matrix.inputs);
        F sums[WIDTH];
UNROLL(4)
        for (int v = 0; v < WIDTH; v++) sums[v] = splat_float(0.0f);
        for (int64_t b = 0; b < block_count; b++) {
            Block blocks[WIDTH];
            typename FORMAT::State states[WIDTH];
UNROLL(4)
            for (int v = 0; v < WIDTH; v++) {
                blocks[v] = block_of<FORMAT>(segment.format, bytes, matrix.inputs, b, LANES * v);
                states[v] = FORMAT::begin(blocks[v]);
            }
UNROLL(1)
            for (int turn = 0; turn < FORMAT::CELLS / FORMAT::PERIOD; turn++)
UNROLL(4)
            for (int i = 0; i < FORMAT::PERIOD; i++) {
                const int c = turn * FORMAT::PERIOD + i;
UNROLL(8)
                for (int line = c * FORMAT::WORDS / FORMAT::CELLS; line < (c + 1) * FORMAT::WORDS / FORMAT::CELLS; line++) {
                    ask_for(bytes + 64 * (b * FORMAT::WORDS + line));
                }
                const ROW& own = row[b * FORMAT::CELLS + c];
UNROLL(2)
                for (int part = 0; part < FORMAT::PARTS; part++) {
                    F products[WIDTH];
                    part_products<FORMAT>(blocks, states, c, part, own, products);
UNROLL(4)
                    for (int v = 0; v < WIDTH; v++) {
                        Scales scales;
                        FORMAT::scales(blocks[v], states[v], c, scales);
                        sums[v] = fma(mul(products[v], splat_float(own.unit)), scales.scale[part], sums[v]);
                        float value = own.values[FORMAT::PARTS == 1 ? 2 : part];
                        if (FORMAT::MINIMA) sums[v] = fma(scales.least[part], splat_float(value), sums[v]);
                    }
                }
            }
        }
        place_of(matrix, segment, panel, out, 0, adds).put(sums);
    }
}

}  // namespace
