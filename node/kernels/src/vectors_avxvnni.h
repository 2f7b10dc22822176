// AVX-VNNI: vectors of 256 bits, and products of bytes.
#pragma once
#include "vectors_256.h"
#include "byte_planes.h"

namespace {

// Products of digits: unsigned bytes of the matrix by signed bytes of the row, four columns a step.
constexpr int steps(int) { return 8; }
constexpr int SIGNED_OFFSET = 128;
constexpr int most_rows(int digits) { return digits == 1 ? 6 : digits == 2 ? 3 : 2; }

template <bool SIGNED> inline void to_steps(I word, I steps[1]) {
    steps[0] = SIGNED ? _mm256_xor_si256(word, _mm256_set1_epi8(-128)) : word;
}
inline I step(I sum, I weights, I digits) { return _mm256_dpbusd_avx_epi32(sum, weights, digits); }
inline void in_order(I& sum) {
#if defined(__GNUC__)
    __asm__("" : "+x"(sum));
#endif
}

// One block of 32 numbers as bytes of base 256: the highest digits first, each in the order of the columns.
template <int DIGITS> inline void put_digits(const int32_t numbers[32], uint8_t* place, int32_t sums[planes(DIGITS)][2]) {
    I rest[4];
    for (int i = 0; i < 4; i++) rest[i] = load(numbers + LANES * i);
    for (int digit = DIGITS - 1; digit >= 0; digit--) {
        I own[4];
        for (int i = 0; i < 4; i++) {
            const I higher = digit ? right_signed<8>(plus(rest[i], splat(128))) : splat(0);
            own[i] = minus(rest[i], left<8>(higher));
            rest[i] = higher;
        }
        store(place + 32 * digit, bytes_of(own));
        for (int half = 0; half < 2; half++) sums[digit][half] = sum_of(plus(own[2 * half], own[2 * half + 1]));
    }
}

}  // namespace
