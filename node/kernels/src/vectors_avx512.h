// Vectors of AVX-512 with VNNI: sixteen lanes of 32 bits. What each operation does is said in vectors.h.
#pragma once
#include <immintrin.h>

namespace {

typedef __m512i I;
typedef __m512 F;
constexpr int LANES = 16;

inline I load(const void* p) { return _mm512_loadu_si512(p); }
inline void store(void* p, I a) { _mm512_storeu_si512(p, a); }
inline F load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline void store_floats(float* p, F a) { _mm512_storeu_ps(p, a); }
inline I splat(int32_t a) { return _mm512_set1_epi32(a); }
inline F splat_float(float a) { return _mm512_set1_ps(a); }
inline I splat_word(const void* p) {
    int32_t a;
    std::memcpy(&a, p, 4);
    return _mm512_set1_epi32(a);
}

inline I both(I a, I b) { return _mm512_and_si512(a, b); }
inline I either(I a, I b) { return _mm512_or_si512(a, b); }
inline I plus(I a, I b) { return _mm512_add_epi32(a, b); }
inline I minus(I a, I b) { return _mm512_sub_epi32(a, b); }
template <int N> inline I left(I a) { return _mm512_slli_epi32(a, N); }
template <int N> inline I right(I a) { return _mm512_srli_epi32(a, N); }
template <int N> inline I right_signed(I a) { return _mm512_srai_epi32(a, N); }
inline I right_by(I a, int n) { return _mm512_srli_epi32(a, static_cast<unsigned>(n)); }  // a constant, once loops are unrolled
inline I left_by(I a, int n) { return _mm512_slli_epi32(a, static_cast<unsigned>(n)); }

inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F greater(F a, F b) { return _mm512_max_ps(a, b); }
inline F lesser(F a, F b) { return _mm512_min_ps(a, b); }
inline F magnitude(F a) { return _mm512_abs_ps(a); }
inline F to_floats(I a) { return _mm512_cvtepi32_ps(a); }
inline I to_integers(F a) { return _mm512_cvtps_epi32(a); }
inline F bits_of(I a) { return _mm512_castsi512_ps(a); }
inline I bits_of(F a) { return _mm512_castps_si512(a); }

inline __m256i load_halves(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline F float16s(const uint8_t* p) { return _mm512_cvtph_ps(load_halves(p)); }
inline I words16(const uint8_t* p) { return _mm512_cvtepu16_epi32(load_halves(p)); }
inline I bytes8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline I looked_up(const int8_t table[16], I places) {
    __m128i small = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(small), places);
}

}  // namespace
#include "byte_planes.h"

namespace {

// Products of digits: unsigned bytes of the matrix by signed bytes of the row, four columns a step.
constexpr int steps(int) { return 8; }
constexpr int SIGNED_OFFSET = 128;
constexpr int most_rows(int digits) { return digits == 1 ? 16 : digits == 2 ? 12 : 8; }

template <bool SIGNED> inline void to_steps(I word, I steps[1]) {
    steps[0] = SIGNED ? _mm512_xor_si512(word, _mm512_set1_epi8(-128)) : word;
}
inline I step(I sum, I weights, I digits) { return _mm512_dpbusd_epi32(sum, weights, digits); }
inline void in_order(I& sum) {
#if defined(__GNUC__) && defined(__AVX512F__)
    __asm__("" : "+v"(sum));
#endif
}

// One block of 32 numbers as bytes of base 256: the highest digits first, each in the order of the columns.
template <int DIGITS> inline void put_digits(const int32_t numbers[32], uint8_t* place, int32_t sums[planes(DIGITS)][2]) {
    for (int half = 0; half < 2; half++) {
        I rest = load(numbers + 16 * half);
        for (int digit = DIGITS - 1; digit >= 0; digit--) {
            I higher = digit ? right_signed<8>(plus(rest, splat(128))) : splat(0);
            I own = minus(rest, left<8>(higher));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(place + 32 * digit + 16 * half), _mm512_cvtepi32_epi8(own));
            sums[digit][half] = _mm512_reduce_add_epi32(own);
            rest = higher;
        }
    }
}

}  // namespace
