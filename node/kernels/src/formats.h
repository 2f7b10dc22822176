// How the stored formats unpack. A panel holds 16 rows of a matrix in exactly the bits they are stored in: of every block
// first its 32-bit words, each of all 16 rows side by side, in the first part of the panel; what is smaller (16-bit scales,
// single bytes), again of 16 rows side by side, in the second part. `panels.cpp` puts them there.
//
// A block unpacks to cells: 32 columns of the LANES rows from `first_row` on, a byte each, four columns a word in the
// order of the columns. A number of the matrix is scale * (byte - OFFSET) + least, where a scale (and a least number,
// where MINIMA says that there is one) serves 32 / PARTS columns. After PERIOD cells the bits lie as in the first ones. The source of every layout is the `gguf` library.
#pragma once
#include "vectors.h"

namespace {

struct Block {
    const uint8_t* words;
    const uint8_t* small;
    int first_row;

    I word(int index) const { return load(words + 64 * index + 4 * first_row); }
    F half(int index) const { return float16s(small + 32 * index + 2 * first_row); }
    I half_word(int index) const { return words16(small + 32 * index + 2 * first_row); }
    I byte(int index) const { return bytes8(small + 16 * index + first_row); }
};

struct Cell {
    I words[8];
    F scale[2];
    F least[2];
};

inline I every_byte(uint32_t byte) { return splat(static_cast<int32_t>(byte * 0x01010101u)); }

// One byte of a word as a number.
inline F byte_number(I word, int place) { return to_floats(both(right_by(word, 8 * place), splat(255))); }
inline F signed_byte_number(I word, int place) { return to_floats(right_signed<24>(left_by(word, 24 - 8 * place))); }

// Sixteen bytes of low and high halves: the low ones are columns 0 to 15, the high ones 16 to 31.
inline void nibbles(const Block& block, int first_word, I words[8]) {
    const I low = every_byte(15);
    for (int i = 0; i < 4; i++) {
        I packed = block.word(first_word + i);
        words[i] = both(packed, low);
        words[i + 4] = both(right<4>(packed), low);
    }
}

// The fifth bits of 32 columns, which a panel has in the order of bytes: bit i of byte b is that of column 4 i + b.
inline void fifth_bits(I bits, I words[8]) {
    const I fifth = every_byte(16);
    for (int i = 0; i < 8; i++) words[i] = either(words[i], both(i < 4 ? left_by(bits, 4 - i) : right_by(bits, i - 4), fifth));
}

struct NoState {};

struct Q8_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 8, SMALL = 2, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = true, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        for (int i = 0; i < 8; i++) out.words[i] = block.word(i);
        out.scale[0] = block.half(0);
    }
};

struct Q4_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 2, PARTS = 1, OFFSET = 8;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 0, out.words);
        out.scale[0] = block.half(0);
    }
};

struct Q4_1 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 4, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 0, out.words);
        out.scale[0] = block.half(0);
        out.least[0] = block.half(1);
    }
};

struct Q5_0 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 5, SMALL = 2, PARTS = 1, OFFSET = 16;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 1, out.words);
        fifth_bits(block.word(0), out.words);
        out.scale[0] = block.half(0);
    }
};

struct Q5_1 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 5, SMALL = 4, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 1, out.words);
        fifth_bits(block.word(0), out.words);
        out.scale[0] = block.half(0);
        out.least[0] = block.half(1);
    }
};

// Two bits of every column; of each 16 columns a scale and a least number of four bits.
struct Q2_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 20, SMALL = 4, PARTS = 2, OFFSET = 0;
    static constexpr bool SIGNED = false, MINIMA = true;
    struct State {
        F scale, least;
    };
    static State begin(const Block& block) { return {block.half(0), block.half(1)}; }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        for (int i = 0; i < 8; i++) {
            out.words[i] = both(right_by(block.word(4 + 8 * (cell >> 2) + i), 2 * (cell & 3)), every_byte(3));
        }
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part;
            I packed = right_by(block.word(group >> 2), 8 * (group & 3));
            out.scale[part] = mul(state.scale, to_floats(both(packed, splat(15))));
            out.least[part] = sub(splat_float(0.0f), mul(state.least, to_floats(both(right<4>(packed), splat(15)))));
        }
    }
};

// Three bits of every column, the third apart; of each 16 columns a scale of six bits, its upper two apart.
struct Q3_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 27, SMALL = 2, PARTS = 2, OFFSET = 4;
    static constexpr bool SIGNED = false, MINIMA = false;
    struct State {
        F scale;
        I scales[4];
    };
    static State begin(const Block& block) {
        State state;
        state.scale = block.half(0);
        I first = block.word(0), second = block.word(1), upper = block.word(2);
        const I low = every_byte(15), two = every_byte(3);
        I lower[4] = {both(first, low), both(second, low), both(right<4>(first), low), both(right<4>(second), low)};
        for (int i = 0; i < 4; i++) state.scales[i] = either(lower[i], left<4>(both(right_by(upper, 2 * i), two)));
        return state;
    }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        for (int i = 0; i < 8; i++) {
            I low = both(right_by(block.word(11 + 8 * (cell >> 2) + i), 2 * (cell & 3)), every_byte(3));
            I third = both(right_by(block.word(3 + i), cell), every_byte(1));
            out.words[i] = either(low, left<2>(third));
        }
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part;
            F steps = sub(byte_number(state.scales[group >> 2], group & 3), splat_float(32.0f));
            out.scale[part] = mul(state.scale, steps);
        }
    }
};

// The scales and least numbers of Q4_K and Q5_K: six bits for each of eight cells, in three words.
struct SixBits {
    F scale, least;
    I scales[2], minima[2];

    static SixBits of(const Block& block) {
        SixBits state;
        state.scale = block.half(0);
        state.least = block.half(1);
        I first = block.word(0), second = block.word(1), third = block.word(2);
        const I six = every_byte(63), four = every_byte(15), upper = every_byte(48);
        state.scales[0] = both(first, six);
        state.minima[0] = both(second, six);
        state.scales[1] = either(both(third, four), both(right<2>(first), upper));
        state.minima[1] = either(both(right<4>(third), four), both(right<2>(second), upper));
        return state;
    }
    void put(int cell, Cell& out) const {
        out.scale[0] = mul(scale, byte_number(scales[cell >> 2], cell & 3));
        out.least[0] = sub(splat_float(0.0f), mul(least, byte_number(minima[cell >> 2], cell & 3)));
    }
};

struct Q4_K {
    static constexpr int PERIOD = 2, CELLS = 8, WORDS = 35, SMALL = 4, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef SixBits State;
    static State begin(const Block& block) { return SixBits::of(block); }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        for (int i = 0; i < 8; i++) {
            out.words[i] = both(right_by(block.word(3 + 8 * (cell >> 1) + i), 4 * (cell & 1)), every_byte(15));
        }
        state.put(cell, out);
    }
};

struct Q5_K {
    static constexpr int PERIOD = 2, CELLS = 8, WORDS = 43, SMALL = 4, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = false, MINIMA = true;
    typedef SixBits State;
    static State begin(const Block& block) { return SixBits::of(block); }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        for (int i = 0; i < 8; i++) {
            I low = both(right_by(block.word(11 + 8 * (cell >> 1) + i), 4 * (cell & 1)), every_byte(15));
            out.words[i] = either(low, left<4>(both(right_by(block.word(3 + i), cell), every_byte(1))));
        }
        state.put(cell, out);
    }
};

// Six bits of every column, the upper two apart; of each 16 columns a scale of a signed byte.
struct Q6_K {
    static constexpr int PERIOD = 4, CELLS = 8, WORDS = 52, SMALL = 2, PARTS = 2, OFFSET = 32;
    static constexpr bool SIGNED = false, MINIMA = false;
    struct State {
        F scale;
    };
    static State begin(const Block& block) { return {block.half(0)}; }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        int half = cell >> 2, quarter = cell & 3;
        for (int i = 0; i < 8; i++) {
            I low = both(right_by(block.word(16 * half + 8 * (quarter & 1) + i), 4 * (quarter >> 1)), every_byte(15));
            I high = both(right_by(block.word(32 + 8 * half + i), 2 * quarter), every_byte(3));
            out.words[i] = either(low, left<4>(high));
        }
        for (int part = 0; part < 2; part++) {
            int group = 2 * cell + part;
            out.scale[part] = mul(state.scale, signed_byte_number(block.word(48 + (group >> 2)), group & 3));
        }
    }
};

alignas(16) constexpr int8_t IQ4_NUMBERS[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline void look_up(const int8_t table[16], I words[8]) {
    for (int i = 0; i < 8; i++) words[i] = looked_up(table, words[i]);
}

struct IQ4_NL {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 2, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = true, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 0, out.words);
        look_up(IQ4_NUMBERS, out.words);
        out.scale[0] = block.half(0);
    }
};

// As IQ4_NL, of each 32 columns a scale of six bits, its upper two apart.
struct IQ4_XS {
    static constexpr int PERIOD = 1, CELLS = 8, WORDS = 33, SMALL = 4, PARTS = 1, OFFSET = 0;
    static constexpr bool SIGNED = true, MINIMA = false;
    struct State {
        F scale;
        I low, high;
    };
    static State begin(const Block& block) { return {block.half(0), block.word(0), block.half_word(1)}; }
    static void cell(const Block& block, const State& state, int cell, Cell& out) {
        nibbles(block, 1 + 4 * cell, out.words);
        look_up(IQ4_NUMBERS, out.words);
        I low = both(right_by(state.low, 4 * cell), splat(15));
        I high = both(right_by(state.high, 2 * cell), splat(3));
        F steps = sub(to_floats(either(low, left<4>(high))), splat_float(32.0f));
        out.scale[0] = mul(state.scale, steps);
    }
};

// Twice the numbers of E2M1, twelve more so that none is negative; a scale is a power of two, of half the exponent's.
alignas(16) constexpr int8_t MXFP4_NUMBERS[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct MXFP4 {
    static constexpr int PERIOD = 1, CELLS = 1, WORDS = 4, SMALL = 1, PARTS = 1, OFFSET = 12;
    static constexpr bool SIGNED = false, MINIMA = false;
    typedef NoState State;
    static State begin(const Block&) { return {}; }
    static void cell(const Block& block, const State&, int, Cell& out) {
        nibbles(block, 0, out.words);
        look_up(MXFP4_NUMBERS, out.words);
        I exponent = block.byte(0), half = right<1>(exponent);  // 2^(exponent - 128), which may be denormal, of two factors
        F first = bits_of(left<23>(plus(half, splat(64)))), second = bits_of(left<23>(plus(minus(exponent, half), splat(62))));
        out.scale[0] = mul(first, second);
    }
};

}  // namespace
