// AVX2: vectors of 256 bits, and products of 16-bit numbers.
#pragma once
#include "vectors_256.h"

namespace {

// Products of two or three digits: a cell's bytes become 16-bit numbers, those of even columns apart from those of odd ones.
// Those of one digit are products of bytes (byte_products.h).
constexpr int steps(int digits) { return digits == 1 ? 8 : 16; }
constexpr int SIGNED_OFFSET = 0;
constexpr int planes(int digits) { return digits == 3 ? 2 : 1; }
constexpr int most_rows(int digits) { return digits == 3 ? 3 : 6; }

template <bool> inline void to_steps(I word, I (&steps)[1]) { steps[0] = word; }
template <bool SIGNED> inline void to_steps(I word, I (&steps)[2]) {
    if (SIGNED) {
        steps[0] = _mm256_srai_epi16(_mm256_slli_epi16(word, 8), 8);
        steps[1] = _mm256_srai_epi16(word, 8);
    } else {
        steps[0] = _mm256_and_si256(word, _mm256_set1_epi16(255));
        steps[1] = _mm256_srli_epi16(word, 8);
    }
}
inline I step(I sum, I weights, I digits) { return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, digits)); }
inline void in_order(I& sum) {
#if defined(__GNUC__)
    __asm__("" : "+x"(sum));
#endif
}
template <int DIGITS> inline F combined(const I sums[planes(DIGITS)]) {
    F high = to_floats(sums[0]);
    return DIGITS == 3 ? add(mul(high, splat_float(256.0f)), to_floats(sums[planes(DIGITS) - 1])) : high;
}
// Sixteen numbers of at most 16 bits, of every four columns the even ones first.
inline I pairs_of(I low, I high) {
    const I order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12,
                                     13, 10, 11, 14, 15);
    return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8), order);
}
// One block of 32 numbers, as bytes if they have one digit, else as 16-bit numbers; of three digits the low ones apart, after
// the others.
template <int DIGITS> inline void put_digits(const int32_t numbers[32], uint8_t* place, int32_t sums[planes(DIGITS)][2]) {
    if (DIGITS == 1) {
        I own[4];
        for (int i = 0; i < 4; i++) own[i] = load(numbers + LANES * i);
        store(place, bytes_of(own));
        for (int half = 0; half < 2; half++) sums[0][half] = sum_of(plus(own[2 * half], own[2 * half + 1]));
        return;
    }
    for (int half = 0; half < 2; half++) {
        I rest[2] = {load(numbers + 16 * half), load(numbers + 16 * half + 8)};
        for (int plane = planes(DIGITS) - 1; plane >= 0; plane--) {
            I own[2];
            for (int i = 0; i < 2; i++) {
                I higher = plane ? right_signed<8>(plus(rest[i], splat(128))) : splat(0);
                own[i] = minus(rest[i], left<8>(higher));
                rest[i] = higher;
            }
            store(place + 64 * plane + 32 * half, pairs_of(own[0], own[1]));
            sums[plane][half] = sum_of(plus(own[0], own[1]));
        }
    }
}

}  // namespace
