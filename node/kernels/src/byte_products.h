// AVX2: products of bytes, four columns an instruction, which are added up in 16 bits for as many words as these hold. Rows of
// one digit are multiplied so; a single row of two digits too, as two planes, by numbers of a matrix of at most six bits. The
// sums are the same integers as those of 16-bit numbers.
#pragma once
#include "digits.h"
#include "formats.h"

namespace {

constexpr int MOST_BYTE = 63;  // of a matrix: two words of such bytes and of digits fit in 16 bits

template <class FORMAT> constexpr bool multiplied_as_bytes() { return !FORMAT::SIGNED && FORMAT::MOST <= MOST_BYTE; }

// Words of a part of a cell whose products fit in 16 bits together; of signed bytes and one digit, one does.
constexpr int words_together(bool is_signed, int most, int words) {
    const int fitting = is_signed ? 1 : 32767 / (256 * most);
    return fitting >= words ? words : fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1;
}

template <bool SIGNED> inline I products_of_bytes(I weights, I digits) {
    return SIGNED ? _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(digits, weights))
                  : _mm256_maddubs_epi16(weights, digits);
}

// A block of a row of two digits.
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

// The integer products of one part of a cell with the planes of a row, the highest first, as floats. `sums` are those of the
// row's halves.
template <class FORMAT, int PLANES>
inline void plane_products(const Block blocks[WIDTH], const typename FORMAT::State states[WIDTH], int cell, int part,
                           const uint8_t* const (&digits)[PLANES], const int32_t sums[2], F out[WIDTH]) {
    constexpr int PARTS = FORMAT::PARTS, OFFSET = FORMAT::OFFSET, WORDS = 8 / PARTS;
    constexpr int TOGETHER = words_together(FORMAT::SIGNED, FORMAT::MOST, WORDS);
    I whole[WIDTH];
UNROLL(2)
    for (int v = 0; v < WIDTH; v++) whole[v] = splat(offset_taken(OFFSET, sums[part], PARTS == 1 ? sums[1] : 0));
UNROLL(8)
    for (int first = 0; first < WORDS; first += TOGETHER) {
        I planes[PLANES][WIDTH];
UNROLL(2)
        for (int plane = 0; plane < PLANES; plane++)
UNROLL(2)
            for (int v = 0; v < WIDTH; v++) planes[plane][v] = splat(0);
UNROLL(8)
        for (int i = 0; i < TOGETHER; i++) {
            const int word = part * WORDS + first + i;
UNROLL(2)
            for (int v = 0; v < WIDTH; v++) {
                const I weights = FORMAT::word(blocks[v], states[v], cell, word);
UNROLL(2)
                for (int plane = 0; plane < PLANES; plane++) {
                    const I products = products_of_bytes<FORMAT::SIGNED>(weights, splat_word(digits[plane] + 4 * word));
                    planes[plane][v] = _mm256_add_epi16(planes[plane][v], products);
                    in_order(planes[plane][v]);
                }
            }
        }
UNROLL(2)
        for (int plane = 0; plane < PLANES; plane++) {
            const I unit = _mm256_set1_epi16(plane == PLANES - 1 ? 1 : 256);
UNROLL(2)
            for (int v = 0; v < WIDTH; v++) whole[v] = plus(whole[v], _mm256_madd_epi16(planes[plane][v], unit));
        }
    }
UNROLL(2)
    for (int v = 0; v < WIDTH; v++) out[v] = to_floats(whole[v]);
}

// As that of a RowBlock.
template <class FORMAT>
inline void part_products(const Block blocks[WIDTH], const typename FORMAT::State states[WIDTH], int cell, int part,
                          const ByteBlock& row, F out[WIDTH]) {
    const uint8_t* const planes[2] = {reinterpret_cast<const uint8_t*>(row.high), reinterpret_cast<const uint8_t*>(row.low)};
    plane_products<FORMAT>(blocks, states, cell, part, planes, row.sums, out);
}

}  // namespace
