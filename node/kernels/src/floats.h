// Matrices of floating-point numbers: a panel has of each column the numbers of its 16 rows side by side.
#pragma once
#include "vectors.h"

namespace {

struct F32 {
    static constexpr int BYTES = 4;
    static F numbers(const uint8_t* p) { return bits_of(load(p)); }
};

struct F16 {
    static constexpr int BYTES = 2;
    static F numbers(const uint8_t* p) { return float16s(p); }
};

struct BF16 {
    static constexpr int BYTES = 2;
    static F numbers(const uint8_t* p) { return bfloat16s(p); }
};

constexpr int CHAIN = 8;  // products that are summed from zero before their sum is added to that of the columns before

}  // namespace
