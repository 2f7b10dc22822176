// Vectors of NEON with the dot product of Armv8.2: four lanes of 32 bits. What each operation does is said in vectors.h.
#pragma once
#include <arm_neon.h>

namespace {

typedef int32x4_t I;
typedef float32x4_t F;
constexpr int LANES = 4;

inline I load(const void* p) { return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
inline void store(void* p, I a) { vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_s32(a)); }
inline F load_floats(const float* p) { return vld1q_f32(p); }
inline void store_floats(float* p, F a) { vst1q_f32(p, a); }
inline I splat(int32_t a) { return vdupq_n_s32(a); }
inline F splat_float(float a) { return vdupq_n_f32(a); }
inline I splat_word(const void* p) {
    int32_t a;
    std::memcpy(&a, p, 4);
    return vdupq_n_s32(a);
}

inline I both(I a, I b) { return vandq_s32(a, b); }
inline I either(I a, I b) { return vorrq_s32(a, b); }
inline I plus(I a, I b) { return vaddq_s32(a, b); }
inline I minus(I a, I b) { return vsubq_s32(a, b); }
inline I right_by(I a, int n) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n))); }
inline I left_by(I a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
template <int N> inline I left(I a) { return left_by(a, N); }
template <int N> inline I right(I a) { return right_by(a, N); }
template <int N> inline I right_signed(I a) { return vshlq_s32(a, vdupq_n_s32(-N)); }

inline F mul(F a, F b) { return vmulq_f32(a, b); }
inline F add(F a, F b) { return vaddq_f32(a, b); }
inline F sub(F a, F b) { return vsubq_f32(a, b); }
inline F div(F a, F b) { return vdivq_f32(a, b); }
inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
inline F greater(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline F lesser(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline F magnitude(F a) { return vabsq_f32(a); }
inline F to_floats(I a) { return vcvtq_f32_s32(a); }
inline I to_integers(F a) { return vcvtnq_s32_f32(a); }
inline F bits_of(I a) { return vreinterpretq_f32_s32(a); }
inline I bits_of(F a) { return vreinterpretq_s32_f32(a); }

inline F float16s(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline I words16(const uint8_t* p) { return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p)))); }
inline I bytes8(const uint8_t* p) {
    uint32_t four;
    std::memcpy(&four, p, 4);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
inline I looked_up(const int8_t table[16], I places) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(places)));
}

}  // namespace
#include "byte_planes.h"

namespace {

// Products of digits: signed bytes by signed bytes, four columns a step; unsigned ones of a cell have 7 bits at most.
constexpr int steps(int) { return 8; }
constexpr int SIGNED_OFFSET = 0;
constexpr int most_rows(int digits) { return digits == 1 ? 6 : digits == 2 ? 3 : 2; }

template <bool SIGNED> inline void to_steps(I word, I steps[1]) { steps[0] = word; }
inline I step(I sum, I weights, I digits) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(weights), vreinterpretq_s8_s32(digits));
}
inline void in_order(I& sum) {
#if defined(__GNUC__)
    __asm__("" : "+w"(sum));
#endif
}

}  // namespace
#include "digits_bytes.h"
