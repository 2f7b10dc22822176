// The operations of AVX-512 that the kernels use, in plain C++: found instead of the compiler's header where the kernels are
// compared on a processor without them. What each one does is from Intel's Intrinsics Guide.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

struct __m128i {
    uint8_t bytes[16];
};
struct __m256i {
    uint16_t halves[16];
};
struct __m512i {
    int32_t lane[16];
};
struct __m512 {
    float lane[16];
};

template <class OUT> inline OUT read_from(const void* place) {
    OUT out;
    std::memcpy(&out, place, sizeof(OUT));
    return out;
}
template <class OUT, class MAKE> inline OUT lanes(MAKE make) {
    OUT out;
    for (int i = 0; i < 16; i++) out.lane[i] = make(i);
    return out;
}
template <class MAKE> inline __m512i integers(MAKE make) {
    return lanes<__m512i>([&](int i) { return static_cast<int32_t>(make(i)); });
}
template <class MAKE> inline __m512 floats(MAKE make) { return lanes<__m512>(make); }

inline __m128i _mm_loadu_si128(const __m128i* p) { return read_from<__m128i>(p); }
inline void _mm_storeu_si128(__m128i* p, __m128i a) { std::memcpy(p, &a, 16); }
inline __m256i _mm256_loadu_si256(const __m256i* p) { return read_from<__m256i>(p); }
inline __m512i _mm512_loadu_si512(const void* p) { return read_from<__m512i>(p); }
inline void _mm512_storeu_si512(void* p, __m512i a) { std::memcpy(p, &a, 64); }
inline __m512 _mm512_loadu_ps(const float* p) { return read_from<__m512>(p); }
inline void _mm512_storeu_ps(float* p, __m512 a) { std::memcpy(p, &a, 64); }
inline __m512i _mm512_castps_si512(__m512 a) { return read_from<__m512i>(&a); }
inline __m512 _mm512_castsi512_ps(__m512i a) { return read_from<__m512>(&a); }

inline __m512i _mm512_set1_epi32(int32_t a) {
    return integers([=](int) { return a; });
}
inline __m512i _mm512_set1_epi8(char a) {
    __m512i out;
    std::memset(&out, a, 64);
    return out;
}
inline __m512 _mm512_set1_ps(float a) {
    return floats([=](int) { return a; });
}
inline __m512i _mm512_broadcast_i32x4(__m128i a) {
    return integers([&](int i) { return read_from<int32_t>(a.bytes + 4 * (i % 4)); });
}

inline uint32_t bits(int32_t a) { return static_cast<uint32_t>(a); }
#define OF_INTEGERS(NAME, RESULT) \
    inline __m512i NAME(__m512i a, __m512i b) { return integers([&](int i) { return RESULT; }); }
OF_INTEGERS(_mm512_add_epi32, bits(a.lane[i]) + bits(b.lane[i]))
OF_INTEGERS(_mm512_sub_epi32, bits(a.lane[i]) - bits(b.lane[i]))
OF_INTEGERS(_mm512_and_si512, a.lane[i] & b.lane[i])
OF_INTEGERS(_mm512_or_si512, a.lane[i] | b.lane[i])
OF_INTEGERS(_mm512_xor_si512, a.lane[i] ^ b.lane[i])
#define OF_SHIFTS(NAME, RESULT) \
    inline __m512i NAME(__m512i a, unsigned n) { return integers([&](int i) { return RESULT; }); }
OF_SHIFTS(_mm512_slli_epi32, n > 31 ? 0 : bits(a.lane[i]) << n)
OF_SHIFTS(_mm512_srli_epi32, n > 31 ? 0 : bits(a.lane[i]) >> n)
OF_SHIFTS(_mm512_srai_epi32, a.lane[i] >> (n > 31 ? 31 : n))
#define OF_FLOATS(NAME, RESULT) \
    inline __m512 NAME(__m512 a, __m512 b) { return floats([&](int i) { return RESULT; }); }
OF_FLOATS(_mm512_add_ps, a.lane[i] + b.lane[i])
OF_FLOATS(_mm512_sub_ps, a.lane[i] - b.lane[i])
OF_FLOATS(_mm512_mul_ps, a.lane[i] * b.lane[i])
OF_FLOATS(_mm512_div_ps, a.lane[i] / b.lane[i])
OF_FLOATS(_mm512_max_ps, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
OF_FLOATS(_mm512_min_ps, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return floats([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline __m512 _mm512_abs_ps(__m512 a) {
    return floats([&](int i) { return std::fabs(a.lane[i]); });
}

inline __m512 _mm512_cvtepi32_ps(__m512i a) {
    return floats([&](int i) { return static_cast<float>(a.lane[i]); });
}
inline __m512i _mm512_cvtps_epi32(__m512 a) {  // what no integer is becomes the least one
    return integers([&](int i) {
        const float nearest = std::nearbyint(a.lane[i]);
        return nearest >= -2147483648.0f && nearest < 2147483648.0f ? static_cast<int32_t>(nearest) : INT32_MIN;
    });
}
inline __m512 _mm512_cvtph_ps(__m256i a) {
    return floats([&](int i) {
        const int half = a.halves[i], exponent = half >> 10 & 31, fraction = half & 1023;
        float size = exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(1.0f * fraction, -24);
        if (exponent == 31) size = fraction ? NAN : INFINITY;
        return half & 0x8000 ? -size : size;
    });
}
inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
    return integers([&](int i) { return a.halves[i]; });
}
inline __m512i _mm512_cvtepu8_epi32(__m128i a) {
    return integers([&](int i) { return a.bytes[i]; });
}
inline __m128i _mm512_cvtepi32_epi8(__m512i a) {
    __m128i out;
    for (int i = 0; i < 16; i++) out.bytes[i] = static_cast<uint8_t>(a.lane[i]);
    return out;
}
inline int32_t _mm512_reduce_add_epi32(__m512i a) {
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += bits(a.lane[i]);
    return static_cast<int32_t>(sum);
}
inline __m512i _mm512_shuffle_epi8(__m512i a, __m512i places) {
    uint8_t from[64], at[64], out[64];
    std::memcpy(from, &a, 64);
    std::memcpy(at, &places, 64);
    for (int i = 0; i < 64; i++) out[i] = at[i] & 0x80 ? 0 : from[i / 16 * 16 + (at[i] & 15)];
    return read_from<__m512i>(out);
}
inline __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    return integers([&](int i) {
        uint8_t unsigned_bytes[4];
        int8_t signed_bytes[4];
        std::memcpy(unsigned_bytes, a.lane + i, 4);
        std::memcpy(signed_bytes, b.lane + i, 4);
        uint32_t own = bits(sum.lane[i]);
        for (int place = 0; place < 4; place++) own += static_cast<uint32_t>(unsigned_bytes[place] * signed_bytes[place]);
        return own;
    });
}
