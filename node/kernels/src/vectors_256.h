// Vectors of 256 bits: eight lanes of 32 bits. What each operation does is said in vectors.h.
#pragma once
#include <immintrin.h>

namespace {

typedef __m256i I;
typedef __m256 F;
constexpr int LANES = 8;

inline I load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store(void* p, I a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
inline F load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline void store_floats(float* p, F a) { _mm256_storeu_ps(p, a); }
inline I splat(int32_t a) { return _mm256_set1_epi32(a); }
inline F splat_float(float a) { return _mm256_set1_ps(a); }
inline I splat_word(const void* p) {
    int32_t a;
    std::memcpy(&a, p, 4);
    return _mm256_set1_epi32(a);
}

inline I both(I a, I b) { return _mm256_and_si256(a, b); }
inline I either(I a, I b) { return _mm256_or_si256(a, b); }
inline I plus(I a, I b) { return _mm256_add_epi32(a, b); }
inline I minus(I a, I b) { return _mm256_sub_epi32(a, b); }
template <int N> inline I left(I a) { return _mm256_slli_epi32(a, N); }
template <int N> inline I right(I a) { return _mm256_srli_epi32(a, N); }
template <int N> inline I right_signed(I a) { return _mm256_srai_epi32(a, N); }
inline I right_by(I a, int n) { return _mm256_srli_epi32(a, n); }  // a constant, once loops are unrolled
inline I left_by(I a, int n) { return _mm256_slli_epi32(a, n); }

inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F greater(F a, F b) { return _mm256_max_ps(a, b); }
inline F lesser(F a, F b) { return _mm256_min_ps(a, b); }
inline F magnitude(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F to_floats(I a) { return _mm256_cvtepi32_ps(a); }
inline I to_integers(F a) { return _mm256_cvtps_epi32(a); }
inline F bits_of(I a) { return _mm256_castsi256_ps(a); }
inline I bits_of(F a) { return _mm256_castps_si256(a); }

inline __m128i load_halves(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F float16s(const uint8_t* p) { return _mm256_cvtph_ps(load_halves(p)); }
inline I words16(const uint8_t* p) { return _mm256_cvtepu16_epi32(load_halves(p)); }
inline I bytes8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
inline I looked_up(const int8_t table[16], I places) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_halves(table)), places);
}
inline int32_t sum_of(I a) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// Thirty-two numbers of at most eight bits as bytes.
inline I bytes_of(const I numbers[4]) {
    const I fours = _mm256_packs_epi16(_mm256_packs_epi32(numbers[0], numbers[1]), _mm256_packs_epi32(numbers[2], numbers[3]));
    return _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

}  // namespace
