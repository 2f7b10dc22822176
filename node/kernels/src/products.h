// Products of rows with a matrix in panels.
//
// One row is multiplied with each block as it is unpacked in registers: this reads memory as fast as it can be read.
// Several rows meet a panel that was unpacked once, into cells in the cache. Either way a number of the product is the sum
// over the blocks of the columns, in their order, and so has the same bits whatever else is multiplied with it.
#pragma once
#include "digits.h"
#include "floats.h"
#include "formats.h"
#include "kernels.h"

namespace {

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

template <class FORMAT> constexpr int64_t panel_bytes(int64_t columns) {
    return columns / (BLOCK * FORMAT::CELLS) * (64 * FORMAT::WORDS + 16 * FORMAT::SMALL);
}
template <class FORMAT> inline Block block_of(const uint8_t* panel, int64_t columns, int64_t block, int first_row) {
    const uint8_t* small = panel + columns / (BLOCK * FORMAT::CELLS) * 64 * FORMAT::WORDS;
    return {panel + block * 64 * FORMAT::WORDS, small + block * 16 * FORMAT::SMALL, first_row};
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
    constexpr int PLANES = planes(DIGITS), PARTS = FORMAT::PARTS, OFFSET = whole_offset<FORMAT>();
    constexpr int CHAINS = WIDTH * PLANES < 4 ? 2 : 1;  // of additions, each of which waits for the one before
    I sums[WIDTH][PLANES][CHAINS];
UNROLL(4)
    for (int v = 0; v < WIDTH; v++) {
UNROLL(3)
        for (int plane = 0; plane < PLANES; plane++) {
            const int32_t* halves = row.sums[plane];
            sums[v][plane][0] = OFFSET ? splat(-OFFSET * (PARTS == 1 ? halves[0] + halves[1] : halves[part])) : splat(0);
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

template <class FORMAT, int DIGITS>
NOT_INLINED void one_row(const Matrix& matrix, const Segment& segment, const RowBlock<DIGITS>* row,
                                       int64_t first_panel, int64_t end_panel, Rows out, bool adds) {
    const int64_t block_count = matrix.inputs / (BLOCK * FORMAT::CELLS);
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const uint8_t* bytes = segment.panels + panel * panel_bytes<FORMAT>(matrix.inputs);
        F sums[WIDTH];
UNROLL(4)
        for (int v = 0; v < WIDTH; v++) sums[v] = splat_float(0.0f);
        for (int64_t b = 0; b < block_count; b++) {
UNROLL(8)
            for (int line = 0; line < FORMAT::WORDS; line++) ask_for(bytes + 64 * (b * FORMAT::WORDS + line));
            Block blocks[WIDTH];
            typename FORMAT::State states[WIDTH];
UNROLL(4)
            for (int v = 0; v < WIDTH; v++) {
                blocks[v] = block_of<FORMAT>(bytes, matrix.inputs, b, LANES * v);
                states[v] = FORMAT::begin(blocks[v]);
            }
UNROLL(1)
            for (int turn = 0; turn < FORMAT::CELLS / FORMAT::PERIOD; turn++)
UNROLL(4)
            for (int i = 0; i < FORMAT::PERIOD; i++) {
                const int c = turn * FORMAT::PERIOD + i;
                const RowBlock<DIGITS>& own = row[b * FORMAT::CELLS + c];
UNROLL(2)
                for (int part = 0; part < FORMAT::PARTS; part++) {
                    F products[WIDTH];
                    part_products<FORMAT, DIGITS>(blocks, states, c, part, own, products);
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

// A cell of a whole panel in the cache.
template <int PARTS, bool MINIMA> struct CachedCell {
    int32_t steps[STEPS][PANEL_ROWS];
    float scale[PARTS][PANEL_ROWS];
    float least[MINIMA ? PARTS : 1][PANEL_ROWS];
};

template <class FORMAT>
void unpack(const uint8_t* panel, int64_t columns, int64_t first_block, int64_t end_block,
            CachedCell<FORMAT::PARTS, FORMAT::MINIMA>* out) {
    for (int64_t b = first_block; b < end_block; b++, out += FORMAT::CELLS) {
        for (int v = 0; v < WIDTH; v++) {
            Block block = block_of<FORMAT>(panel, columns, b, LANES * v);
            typename FORMAT::State state = FORMAT::begin(block);
            for (int c = 0; c < FORMAT::CELLS; c++) {
                Scales scales;
                FORMAT::scales(block, state, c, scales);
UNROLL(8)
                for (int word = 0; word < 8; word++) {
                    I steps[WORD_STEPS];
                    to_steps<FORMAT::SIGNED>(FORMAT::word(block, state, c, word), steps);
                    for (int s = 0; s < WORD_STEPS; s++) store(out[c].steps[WORD_STEPS * word + s] + LANES * v, steps[s]);
                }
                for (int part = 0; part < FORMAT::PARTS; part++) {
                    store_floats(out[c].scale[part] + LANES * v, scales.scale[part]);
                    if (FORMAT::MINIMA) store_floats(out[c].least[part] + LANES * v, scales.least[part]);
                }
            }
        }
    }
}

// Adds the products of N rows with neighbouring cells of a panel to `sums`, 16 of each row.
template <int DIGITS, int PARTS, bool MINIMA, int N>
NOT_INLINED void multiply_cells(const CachedCell<PARTS, MINIMA>* cells, int count, int offset,
                                              const RowBlock<DIGITS>* rows, float* sums, int64_t sums_stride) {
    constexpr int PLANES = planes(DIGITS), OWN = STEPS / PARTS;
    for (int c = 0; c < count; c++, rows += N) {
        const CachedCell<PARTS, MINIMA>& cell = cells[c];
UNROLL(2)
        for (int part = 0; part < PARTS; part++) {
            I products[N][PLANES][WIDTH];
UNROLL(16)
            for (int n = 0; n < N; n++) {
                for (int plane = 0; plane < PLANES; plane++) {
                    const int32_t* halves = rows[n].sums[plane];
                    I start = splat(-offset * (PARTS == 1 ? halves[0] + halves[1] : halves[part]));
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
                    float* place = sums + n * sums_stride + LANES * v;
                    F product = mul(combined<DIGITS>(own), splat_float(rows[n].unit));
                    F sum = fma(product, load_floats(cell.scale[part] + LANES * v), load_floats(place));
                    float value = rows[n].values[PARTS == 1 ? 2 : part];
                    if (MINIMA) sum = fma(load_floats(cell.least[part] + LANES * v), splat_float(value), sum);
                    store_floats(place, sum);
                }
            }
        }
    }
}

template <int DIGITS, int PARTS, bool MINIMA>
inline void multiply_group(int rows, const CachedCell<PARTS, MINIMA>* cells, int count, int offset,
                           const RowBlock<DIGITS>* group, float* sums, int64_t stride) {
    constexpr int MOST = most_rows(DIGITS);
    switch (rows) {
#define GROUP_OF(N)                                                                                            \
    case N:                                                                                                    \
        if constexpr (N <= MOST) multiply_cells<DIGITS, PARTS, MINIMA, N>(cells, count, offset, group, sums, stride); \
        break;
        GROUP_OF(1) GROUP_OF(2) GROUP_OF(3) GROUP_OF(4) GROUP_OF(6) GROUP_OF(8) GROUP_OF(12) GROUP_OF(16)
#undef GROUP_OF
    }
}

// Rows of a step are multiplied so many at a time, so that their sums with a tile of panels stay in the cache.
constexpr int MOST_SUMS = 480;  // a multiple of every size of a group

// What several rows need to know of a format besides the kind of its cells.
template <int PARTS, bool MINIMA> struct Unpacked {
    void (*unpack)(const uint8_t* panel, int64_t columns, int64_t first_block, int64_t end_block, CachedCell<PARTS, MINIMA>*);
    int64_t panel_bytes;
    int cells;  // of a block
    int offset;
};

template <int DIGITS, int PARTS, bool MINIMA>
void several_rows(const Unpacked<PARTS, MINIMA>& format, const Matrix& matrix, const Segment& segment,
                  const RowBlock<DIGITS>* prepared, int64_t rows, int64_t first_panel, int64_t end_panel, Rows out, bool adds,
                  uint8_t* scratch) {
    typedef CachedCell<PARTS, MINIMA> Cells;
    const int chunk_blocks = CHUNK_CELLS / format.cells;
    const int64_t row_blocks = matrix.inputs / BLOCK, blocks = row_blocks / format.cells;
    Cells* cells = reinterpret_cast<Cells*>(scratch);
    float* sums = reinterpret_cast<float*>(scratch + TILE_PANELS * CHUNK_CELLS * sizeof(Cells));
    constexpr int64_t STRIDE = TILE_PANELS * PANEL_ROWS;
    for (int64_t tile = first_panel; tile < end_panel; tile += TILE_PANELS) {
        const int panels = static_cast<int>(end_panel - tile < TILE_PANELS ? end_panel - tile : TILE_PANELS);
        for (int64_t first_row = 0; first_row < rows; first_row += MOST_SUMS) {
            const int64_t own_rows = rows - first_row < MOST_SUMS ? rows - first_row : MOST_SUMS;
            std::memset(sums, 0, sizeof(float) * own_rows * STRIDE);
            for (int64_t first = 0; first < blocks; first += chunk_blocks) {
                const int64_t end = first + chunk_blocks < blocks ? first + chunk_blocks : blocks;
                const int count = static_cast<int>(end - first) * format.cells;
                for (int p = 0; p < panels; p++) {
                    const uint8_t* panel = segment.panels + (tile + p) * format.panel_bytes;
                    format.unpack(panel, matrix.inputs, first, end, cells + p * CHUNK_CELLS);
                }
                for (int64_t row = 0, size = 0; row < own_rows; row += size) {
                    size = group_rows(static_cast<int>(own_rows - row), most_rows(DIGITS));
                    const RowBlock<DIGITS>* group = prepared + (first_row + row) * row_blocks + first * format.cells * size;
                    for (int p = 0; p < panels; p++) {
                        multiply_group<DIGITS, PARTS, MINIMA>(static_cast<int>(size), cells + p * CHUNK_CELLS, count,
                                                              format.offset, group, sums + row * STRIDE + PANEL_ROWS * p,
                                                              STRIDE);
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
void multiply_format(const Matrix& matrix, const Segment& segment, const uint8_t* prepared, int64_t rows, int64_t first_panel,
                     int64_t end_panel, Rows out, bool adds, uint8_t* scratch) {
    const RowBlock<DIGITS>* blocks = reinterpret_cast<const RowBlock<DIGITS>*>(prepared);
    if (rows == 1) return one_row<FORMAT, DIGITS>(matrix, segment, blocks, first_panel, end_panel, out, adds);
    const Unpacked<FORMAT::PARTS, FORMAT::MINIMA> format = {unpack<FORMAT>, panel_bytes<FORMAT>(matrix.inputs), FORMAT::CELLS,
                                                           whole_offset<FORMAT>()};
    several_rows<DIGITS>(format, matrix, segment, blocks, rows, first_panel, end_panel, out, adds, scratch);
}

}  // namespace
