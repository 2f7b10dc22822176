// AVX2: one row as two planes of bytes. Numbers of a matrix that have at most six bits are multiplied as bytes, four columns an
// instruction, and their products added up in 16 bits for as many words as these hold; wider ones as 16-bit numbers. The sums
// are the same integers either way.
#pragma once
#include "digits.h"
#include "formats.h"

namespace {

constexpr int MOST_BYTE = 63;  // of a matrix: two words of such bytes and of digits fit in 16 bits

template <class FORMAT> constexpr bool multiplied_as_bytes() { return !FORMAT::SIGNED && FORMAT::MOST <= MOST_BYTE; }

struct ByteBlock {
    int8_t high[BLOCK], low[BLOCK];  // in the order of the columns
    int32_t sums[2];                 // of each half of the columns
    float unit, values[3];           // as those of a RowBlock
};

// Of every four columns the even ones come first in a RowBlock.
inline I in_order_of_columns(I first_half, I second_half) {
    const I order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11,
                                     12, 14, 13, 15);
    return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(first_half, second_half), 0xd8), order);
}

inline void make_byte_block(const RowBlock<2>& row, ByteBlock& out) {
    I high[2], low[2];
    for (int half = 0; half < 2; half++) {
        const I numbers = load(row.digits + 32 * half);
        high[half] = _mm256_srai_epi16(_mm256_add_epi16(numbers, _mm256_set1_epi16(128)), 8);
        low[half] = _mm256_sub_epi16(numbers, _mm256_slli_epi16(high[half], 8));
        out.sums[half] = row.sums[0][half];
    }
    store(out.high, in_order_of_columns(high[0], high[1]));
    store(out.low, in_order_of_columns(low[0], low[1]));
    out.unit = row.unit;
    std::memcpy(out.values, row.values, sizeof(out.values));
}

// As that of a RowBlock.
template <class FORMAT>
inline void part_products(const Block blocks[WIDTH], const typename FORMAT::State states[WIDTH], int cell, int part,
                          const ByteBlock& row, F out[WIDTH]) {
    constexpr int PARTS = FORMAT::PARTS, OFFSET = FORMAT::OFFSET, WORDS = 8 / PARTS, FITTING = 32767 / (256 * FORMAT::MOST);
    constexpr int TOGETHER = FITTING >= WORDS ? WORDS : FITTING >= 4 ? 4 : 2;
    const I ones = _mm256_set1_epi16(1), units = _mm256_set1_epi16(256);
    const int32_t sum = PARTS == 1 ? row.sums[0] + row.sums[1] : row.sums[part];
    I sums[WIDTH];
UNROLL(2)
    for (int v = 0; v < WIDTH; v++) sums[v] = splat(-OFFSET * sum);
UNROLL(4)
    for (int first = 0; first < WORDS; first += TOGETHER) {
        I high[WIDTH], low[WIDTH];
UNROLL(2)
        for (int v = 0; v < WIDTH; v++) high[v] = low[v] = splat(0);
UNROLL(8)
        for (int i = 0; i < TOGETHER; i++) {
            const int word = part * WORDS + first + i;
            const I high_digits = splat_word(row.high + 4 * word), low_digits = splat_word(row.low + 4 * word);
UNROLL(2)
            for (int v = 0; v < WIDTH; v++) {
                const I weights = FORMAT::word(blocks[v], states[v], cell, word);
                high[v] = _mm256_add_epi16(high[v], _mm256_maddubs_epi16(weights, high_digits));
                low[v] = _mm256_add_epi16(low[v], _mm256_maddubs_epi16(weights, low_digits));
                in_order(high[v]);
                in_order(low[v]);
            }
        }
UNROLL(2)
        for (int v = 0; v < WIDTH; v++) {
            sums[v] = plus(sums[v], plus(_mm256_madd_epi16(high[v], units), _mm256_madd_epi16(low[v], ones)));
        }
    }
UNROLL(2)
    for (int v = 0; v < WIDTH; v++) out[v] = to_floats(sums[v]);
}

}  // namespace
