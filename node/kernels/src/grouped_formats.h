// The formats whose scales serve groups of columns, as their number says: integers of GPTQ, AWQ and compressed-tensors.
#pragma once
#include "formats.h"

namespace {

// The scale of a block's group. What stands for zero in it may be another code than ZERO, for which the least number makes up.
template <int ZERO> inline void group_scale_and_least(const Block& block, Scales& out) {
    const layerline::Grouping grouping{block.number};
    const I zero = bytes8(block.small + PANEL_ROWS * grouping.scale_bytes() + block.first_row);
    out.scale[0] = group_scales(grouping, block.small, block.first_row);
    out.least[0] = mul(to_floats(minus(splat(ZERO), zero)), out.scale[0]);
}

struct INT4 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 0, PARTS = 1, OFFSET = 8, MOST = 15;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) { return nibble_word(block, 0, index); }
    static void scales(const Block& block, const State&, int, Scales& out) { group_scale_and_least<8>(block, out); }
};

struct INT8 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 8, SMALL = 0, PARTS = 1, OFFSET = 0, MOST = 255;
    static constexpr bool SIGNED = true, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) { return block.word(index); }
    static void scales(const Block& block, const State&, int, Scales& out) { group_scale_and_least<128>(block, out); }
};

}  // namespace
