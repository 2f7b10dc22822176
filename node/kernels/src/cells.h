// Panels that were unpacked for several rows.
#pragma once
#include "one_row.h"

namespace {

// A cell of a whole panel in the cache.
template <int PARTS, bool MINIMA, int STEPS> struct CachedCell {
    int32_t steps[STEPS][PANEL_ROWS];
    float scale[PARTS][PANEL_ROWS];
    float least[MINIMA ? PARTS : 1][PANEL_ROWS];
};

template <class FORMAT, int STEPS>
void unpack(int32_t number, const uint8_t* panel, int64_t columns, int64_t first_block, int64_t end_block,
            CachedCell<FORMAT::PARTS, FORMAT::MINIMA, STEPS>* out) {
    constexpr int OWN = STEPS / 8;  // of a word
    for (int64_t b = first_block; b < end_block; b++, out += FORMAT::CELLS) {
        for (int v = 0; v < WIDTH; v++) {
            Block block = block_of<FORMAT>(number, panel, columns, b, LANES * v);
            typename FORMAT::State state = FORMAT::begin(block);
            for (int c = 0; c < FORMAT::CELLS; c++) {
                Scales scales;
                FORMAT::scales(block, state, c, scales);
UNROLL(8)
                for (int word = 0; word < 8; word++) {
                    I steps[OWN];
                    to_steps<FORMAT::SIGNED>(FORMAT::word(block, state, c, word), steps);
                    for (int s = 0; s < OWN; s++) store(out[c].steps[OWN * word + s] + LANES * v, steps[s]);
                }
                for (int part = 0; part < FORMAT::PARTS; part++) {
                    store_floats(out[c].scale[part] + LANES * v, scales.scale[part]);
                    if (FORMAT::MINIMA) store_floats(out[c].least[part] + LANES * v, scales.least[part]);
                }
            }
        }
    }
}

// What several rows need to know of the numbers in a format's cells.
struct CellNumbers {
    int offset, most;  // `most`: no byte is over it
    bool is_signed;
};

// Adds the integer products of a row with one part of a cell, as floats, to its sums with vector `v` of the panel.
template <int PARTS, bool MINIMA, int STEPS, int DIGITS>
inline void add_part(const CachedCell<PARTS, MINIMA, STEPS>& cell, int part, int v, const RowBlock<DIGITS>& row, F products,
                     float* sums) {
    F sum = fma(mul(products, splat_float(row.unit)), load_floats(cell.scale[part] + LANES * v), load_floats(sums));
    if (MINIMA) sum = fma(load_floats(cell.least[part] + LANES * v), splat_float(row.values[PARTS == 1 ? 2 : part]), sum);
    store_floats(sums, sum);
}

}  // namespace
