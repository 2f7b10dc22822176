// How the stored formats unpack. A panel holds 16 rows of a matrix in exactly the bits they are stored in: of every block
// first its 32-bit words, each of all 16 rows side by side, in the first part of the panel; what is smaller (16-bit scales,
// single bytes), again of 16 rows side by side, in the second part. `panels.cpp` puts them there.
//
// A block unpacks to cells: 32 columns of the LANES rows from `first_row` on, as eight words of four bytes, a byte a column
// in their order; `word` gives one of them. A number of the matrix is scale * (byte - OFFSET) + least, where a scale (and a
// least number, where MINIMA says that there is one) serves 32 / PARTS columns; `scales` gives them. After PERIOD cells the
// bits lie as in the first ones; no byte is over MOST. The source of every layout is the `gguf` library.
//
// Formats without SMALL have scales of groups of columns, as their number says (`Grouping`): the second part has those of each
// group, of 16 rows side by side, and of integers the byte that stands for zero.
#pragma once
#include "kernels.h"
#include "vectors.h"

namespace {

struct Block {
    const uint8_t* words;
    const uint8_t* small;
    int first_row;
    int32_t number;  // of its format

    I word(int index) const { return load(words + 64 * index + 4 * first_row); }
    F half(int index) const { return float16s(small + 32 * index + 2 * first_row); }
    I half_word(int index) const { return words16(small + 32 * index + 2 * first_row); }
    I byte(int index) const { return bytes8(small + 16 * index + first_row); }
};

struct Scales {
    F scale[2];
    F least[2];
};

// The scales of a group, of LANES rows.
inline F group_scales(layerline::Grouping grouping, const uint8_t* group, int first_row) {
    switch (grouping.scale()) {
        case layerline::SCALE_F16: return float16s(group + 2 * first_row);
        case layerline::SCALE_BF16: return bfloat16s(group + 2 * first_row);
        default: return bits_of(load(group + 4 * first_row));
    }
}

inline F negative(F a) { return sub(splat_float(0.0f), a); }
inline I every_byte(uint32_t byte) { return splat(static_cast<int32_t>(byte * 0x01010101u)); }

// One byte of a word as a number.
inline F byte_number(I word, int place) { return to_floats(both(right_by(word, 8 * place), splat(255))); }
inline F signed_byte_number(I word, int place) { return to_floats(right_signed<24>(left_by(word, 24 - 8 * place))); }

// Word `index` of 16 bytes of two halves, from `first_word` on: the low halves are columns 0 to 15, the high ones 16 to 31.
inline I nibble_word(const Block& block, int first_word, int index) {
    I packed = block.word(first_word + (index & 3));
    return both(index < 4 ? packed : right<4>(packed), every_byte(15));
}

// The fifth bits of a word, which a panel has in the order of bytes: bit i of byte b is that of column 4 i + b.
inline I fifth_bits(I bits, int index) {
    return both(index < 4 ? left_by(bits, 4 - index) : right_by(bits, index - 4), every_byte(16));
}

// The state of a block whose cells need none, and of one whose one scale (and least number) is stored as 16 bits.
struct NoState {};
inline void stored_scale(const Block& block, Scales& out) { out.scale[0] = block.half(0); }
inline void stored_scale_and_least(const Block& block, Scales& out) {
    out.scale[0] = block.half(0);
    out.least[0] = block.half(1);
}

struct Q8_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 8, SMALL = 2, PARTS = 1, OFFSET = 0, MOST = 255;
    static constexpr bool SIGNED = true, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) { return block.word(index); }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale(block, out); }
};

struct Q4_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 2, PARTS = 1, OFFSET = 8, MOST = 15;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) { return nibble_word(block, 0, index); }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale(block, out); }
};

struct Q4_1 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 4, PARTS = 1, OFFSET = 0, MOST = 15;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) { return nibble_word(block, 0, index); }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale_and_least(block, out); }
};

struct Q5_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 5, SMALL = 2, PARTS = 1, OFFSET = 16, MOST = 31;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) {
        return either(nibble_word(block, 1, index), fifth_bits(block.word(0), index));
    }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale(block, out); }
};

struct Q5_1 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 5, SMALL = 4, PARTS = 1, OFFSET = 0, MOST = 31;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) {
        return either(nibble_word(block, 1, index), fifth_bits(block.word(0), index));
    }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale_and_least(block, out); }
};

// Two bits of every column; of each 16 columns a scale and a least number of four bits.
struct Q2_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 20, SMALL = 4, PARTS = 2, OFFSET = 0, MOST = 3;
    static constexpr bool SIGNED = false, MINIMA = true;
    struct State {
        F scale, least;
    };
    static State begin(const Block& block) { return {block.half(0), negative(block.half(1))}; }
    static I word(const Block& block, const State&, int cell, int index) {
        return both(right_by(block.word(4 + 8 * (cell >> 2) + index), 2 * (cell & 3)), every_byte(3));
    }
    static void scales(const Block& block, const State& state, int cell, Scales& out) {
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part;
            I packed = right_by(block.word(group >> 2), 8 * (group & 3));
            out.scale[part] = mul(state.scale, to_floats(both(packed, splat(15))));
            out.least[part] = mul(state.least, to_floats(both(right<4>(packed), splat(15))));
        }
    }
};

// Three bits of every column, the third apart; of each 16 columns a scale of six bits, its upper two apart.
struct Q3_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 27, SMALL = 2, PARTS = 2, OFFSET = 4, MOST = 7;
    static constexpr bool SIGNED = false, MINIMA = false;
    struct State {
        F scale;
    };
    static State begin(const Block& block) { return {block.half(0)}; }
    static I word(const Block& block, const State&, int cell, int index) {
        I low = both(right_by(block.word(11 + 8 * (cell >> 2) + index), 2 * (cell & 3)), every_byte(3));
        return either(low, left<2>(both(right_by(block.word(3 + index), cell), every_byte(1))));
    }
    static void scales(const Block& block, const State& state, int cell, Scales& out) {
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part, fourth = group >> 2, place = 8 * (group & 3);
            I low = both(right_by(block.word(fourth & 1), place + 4 * (fourth >> 1)), splat(15));
            I high = both(right_by(block.word(2), place + 2 * fourth), splat(3));
            out.scale[part] = mul(state.scale, sub(to_floats(either(low, left<4>(high))), splat_float(32.0f)));
        }
    }
};

// The scales and least numbers of Q4_K and Q5_K: six bits for each of eight cells, in three words.
struct SixBits {
    F scale, least;
    I scale_words[2], least_words[2];

    static SixBits of(const Block& block) {
        SixBits state;
        state.scale = block.half(0);
        state.least = negative(block.half(1));
        I first = block.word(0), second = block.word(1), third = block.word(2);
        const I six = every_byte(63), four = every_byte(15), upper = every_byte(48);
        state.scale_words[0] = both(first, six);
        state.least_words[0] = both(second, six);
        state.scale_words[1] = either(both(third, four), both(right<2>(first), upper));
        state.least_words[1] = either(both(right<4>(third), four), both(right<2>(second), upper));
        return state;
    }
    void put(int cell, Scales& out) const {
        out.scale[0] = mul(scale, byte_number(scale_words[cell >> 2], cell & 3));
        out.least[0] = mul(least, byte_number(least_words[cell >> 2], cell & 3));
    }
};

struct Q4_K {
    static constexpr int PERIOD = 2, CELLS = 8, WORDS = 35, SMALL = 4, PARTS = 1, OFFSET = 0, MOST = 15;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef SixBits State;
    static State begin(const Block& block) { return SixBits::of(block); }
    static I word(const Block& block, const State&, int cell, int index) {
        return both(right_by(block.word(3 + 8 * (cell >> 1) + index), 4 * (cell & 1)), every_byte(15));
    }
    static void scales(const Block&, const State& state, int cell, Scales& out) { state.put(cell, out); }
};

struct Q5_K {
    static constexpr int PERIOD = 2, CELLS = 8, WORDS = 43, SMALL = 4, PARTS = 1, OFFSET = 0, MOST = 31;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef SixBits State;
    static State begin(const Block& block) { return SixBits::of(block); }
    static I word(const Block& block, const State&, int cell, int index) {
        I low = both(right_by(block.word(11 + 8 * (cell >> 1) + index), 4 * (cell & 1)), every_byte(15));
        return either(low, left<4>(both(right_by(block.word(3 + index), cell), every_byte(1))));
    }
    static void scales(const Block&, const State& state, int cell, Scales& out) { state.put(cell, out); }
};

// Six bits of every column, the upper two apart; of each 16 columns a scale of a signed byte.
struct Q6_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 52, SMALL = 2, PARTS = 2, OFFSET = 32, MOST = 63;
    static constexpr bool SIGNED = false, MINIMA = false;
    struct State {
        F scale;
    };
    static State begin(const Block& block) { return {block.half(0)}; }
    static I word(const Block& block, const State&, int cell, int index) {
        int half = cell >> 2, quarter = cell & 3;
        I low = both(right_by(block.word(16 * half + 8 * (quarter & 1) + index), 4 * (quarter >> 1)), every_byte(15));
        I high = block.word(32 + 8 * half + index);
        return either(low, both(quarter < 2 ? left_by(high, 4 - 2 * quarter) : right_by(high, 2 * quarter - 4), every_byte(48)));
    }
    static void scales(const Block& block, const State& state, int cell, Scales& out) {
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part;
            out.scale[part] = mul(state.scale, signed_byte_number(block.word(48 + (group >> 2)), group & 3));
        }
    }
};

alignas(16) constexpr int8_t IQ4_NUMBERS[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 2, PARTS = 1, OFFSET = 0, MOST = 255;
    static constexpr bool SIGNED = true, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) {
        return looked_up(IQ4_NUMBERS, nibble_word(block, 0, index));
    }
    static void scales(const Block& block, const State&, int, Scales& out) { stored_scale(block, out); }
};

// As IQ4_NL, of each 32 columns a scale of six bits, its upper two apart.
struct IQ4_XS {
    static constexpr int PERIOD = 1, CELLS = 8, WORDS = 33, SMALL = 4, PARTS = 1, OFFSET = 0, MOST = 255;
    static constexpr bool SIGNED = true, MINIMA = false;
    struct State {
        F scale;
        I low, high;
    };
    static State begin(const Block& block) { return {block.half(0), block.word(0), block.half_word(1)}; }
    static I word(const Block& block, const State&, int cell, int index) {
        return looked_up(IQ4_NUMBERS, nibble_word(block, 1 + 4 * cell, index));
    }
    static void scales(const Block&, const State& state, int cell, Scales& out) {
        I low = both(right_by(state.low, 4 * cell), splat(15));
        I high = both(right_by(state.high, 2 * cell), splat(3));
        out.scale[0] = mul(state.scale, sub(to_floats(either(low, left<4>(high))), splat_float(32.0f)));
    }
};

// Twice the numbers of E2M1, twelve more so that none is negative; a scale is a power of two, of half the exponent's.
alignas(16) constexpr int8_t MXFP4_NUMBERS[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct MXFP4 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 1, PARTS = 1, OFFSET = 12, MOST = 24;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static I word(const Block& block, const State&, int, int index) {
        return looked_up(MXFP4_NUMBERS, nibble_word(block, 0, index));
    }
    static void scales(const Block& block, const State&, int, Scales& out) {
        I exponent = block.byte(0), half = right<1>(exponent);  // 2^(exponent - 128), which may be denormal, of two factors
        F first = bits_of(left<23>(plus(half, splat(64)))), second = bits_of(left<23>(plus(minus(exponent, half), splat(62))));
        out.scale[0] = mul(first, second);
    }
};

}  // namespace
