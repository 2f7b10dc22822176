// Vectors in plain C++: sixteen lanes of 32 bits, for any processor. What each operation does is said in vectors.h.
#pragma once
#include <cmath>

namespace {

struct I {
    int32_t lane[16];
};
struct F {
    float lane[16];
};
constexpr int LANES = 16;

template <typename Made, typename Make> inline Made each(Make make) {
    Made made;
    for (int i = 0; i < 16; i++) made.lane[i] = make(i);
    return made;
}
inline uint32_t bits(int32_t a) { return static_cast<uint32_t>(a); }

inline I load(const void* p) {
    I a;
    std::memcpy(a.lane, p, 64);
    return a;
}
inline void store(void* p, I a) { std::memcpy(p, a.lane, 64); }
inline F load_floats(const float* p) {
    F a;
    std::memcpy(a.lane, p, 64);
    return a;
}
inline void store_floats(float* p, F a) { std::memcpy(p, a.lane, 64); }
inline I splat(int32_t a) { return each<I>([&](int) { return a; }); }
inline F splat_float(float a) { return each<F>([&](int) { return a; }); }
inline I splat_word(const void* p) {
    int32_t a;
    std::memcpy(&a, p, 4);
    return splat(a);
}

inline I both(I a, I b) { return each<I>([&](int i) { return a.lane[i] & b.lane[i]; }); }
inline I either(I a, I b) { return each<I>([&](int i) { return a.lane[i] | b.lane[i]; }); }
inline I plus(I a, I b) { return each<I>([&](int i) { return int32_t(bits(a.lane[i]) + bits(b.lane[i])); }); }
inline I minus(I a, I b) { return each<I>([&](int i) { return int32_t(bits(a.lane[i]) - bits(b.lane[i])); }); }
inline I left_by(I a, int n) { return each<I>([&](int i) { return int32_t(bits(a.lane[i]) << n); }); }
inline I right_by(I a, int n) { return each<I>([&](int i) { return int32_t(bits(a.lane[i]) >> n); }); }
template <int N> inline I left(I a) { return left_by(a, N); }
template <int N> inline I right(I a) { return right_by(a, N); }
template <int N> inline I right_signed(I a) { return each<I>([&](int i) { return a.lane[i] >> N; }); }

inline F mul(F a, F b) { return each<F>([&](int i) { return a.lane[i] * b.lane[i]; }); }
inline F add(F a, F b) { return each<F>([&](int i) { return a.lane[i] + b.lane[i]; }); }
inline F sub(F a, F b) { return each<F>([&](int i) { return a.lane[i] - b.lane[i]; }); }
inline F div(F a, F b) { return each<F>([&](int i) { return a.lane[i] / b.lane[i]; }); }
inline F fma(F a, F b, F c) { return each<F>([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); }); }
inline F greater(F a, F b) { return each<F>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; }); }
inline F lesser(F a, F b) { return each<F>([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; }); }
inline F magnitude(F a) { return each<F>([&](int i) { return std::fabs(a.lane[i]); }); }
inline F to_floats(I a) { return each<F>([&](int i) { return static_cast<float>(a.lane[i]); }); }
// Nearest, of equals the even one; what no int32 can be becomes the least one, as on x86.
inline int32_t nearest(float a) {
    return a >= -2147483648.0f && a < 2147483648.0f ? static_cast<int32_t>(std::nearbyint(a)) : INT32_MIN;
}
inline I to_integers(F a) { return each<I>([&](int i) { return nearest(a.lane[i]); }); }
inline F bits_of(I a) {
    F b;
    std::memcpy(b.lane, a.lane, 64);
    return b;
}
inline I bits_of(F a) {
    I b;
    std::memcpy(b.lane, a.lane, 64);
    return b;
}

inline float from_half(uint16_t half) {
    uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 0) return std::ldexp(sign ? -float(mantissa) : float(mantissa), -24);
    uint32_t word = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
    float number;
    std::memcpy(&number, &word, 4);
    return number;
}
inline uint16_t word_at(const uint8_t* p, int i) {
    uint16_t word;
    std::memcpy(&word, p + 2 * i, 2);
    return word;
}
inline F float16s(const uint8_t* p) { return each<F>([&](int i) { return from_half(word_at(p, i)); }); }
inline I words16(const uint8_t* p) { return each<I>([&](int i) { return int32_t(word_at(p, i)); }); }
inline I bytes8(const uint8_t* p) { return each<I>([&](int i) { return int32_t(p[i]); }); }
inline int32_t byte_of(int32_t word, int place) { return int8_t(bits(word) >> 8 * place); }
inline I looked_up(const int8_t table[16], I places) {
    return each<I>([&](int i) {
        uint32_t word = 0;
        for (int b = 0; b < 4; b++) word |= uint32_t(uint8_t(table[byte_of(places.lane[i], b) & 15])) << 8 * b;
        return int32_t(word);
    });
}

}  // namespace
#include "byte_planes.h"

namespace {

// Products of digits: signed bytes by signed bytes, four columns a step; unsigned ones of a cell have 7 bits at most.
constexpr int steps(int) { return 8; }
constexpr int SIGNED_OFFSET = 0;
constexpr int most_rows(int) { return 4; }

template <bool SIGNED> inline void to_steps(I word, I steps[1]) { steps[0] = word; }
inline I step(I sum, I weights, I digits) {
    for (int b = 0; b < 4; b++) {
        for (int i = 0; i < 16; i++) sum.lane[i] += byte_of(weights.lane[i], b) * byte_of(digits.lane[i], b);
    }
    return sum;
}
inline void in_order(I&) {}

}  // namespace
#include "digits_bytes.h"
