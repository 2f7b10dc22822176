// The product of AVX-VNNI on a processor that has only AVX2: what it does is from Intel's Intrinsics Guide.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

inline __m256i emulated_dpbusd(__m256i sum, __m256i a, __m256i b) {
    int32_t sums[8];
    uint8_t unsigned_bytes[32];
    int8_t signed_bytes[32];
    std::memcpy(sums, &sum, 32);
    std::memcpy(unsigned_bytes, &a, 32);
    std::memcpy(signed_bytes, &b, 32);
    for (int i = 0; i < 32; i++) sums[i / 4] += unsigned_bytes[i] * signed_bytes[i];
    std::memcpy(&sum, sums, 32);
    return sum;
}
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
