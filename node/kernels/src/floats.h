// Matrices of floating-point numbers: a panel has of each column the numbers of its 16 rows side by side.
#pragma once
#include "formats.h"

namespace {

constexpr int CHAIN = 8;  // products that are summed from zero before their sum is added to that of the columns before

inline int64_t whole_chains(int64_t columns) { return (columns + CHAIN - 1) / CHAIN * CHAIN; }

// What the columns of a chain have in common: nothing, unless there are scales.
struct Unscaled {
    struct Scales {};
    static constexpr int64_t scales_bytes(int32_t, int64_t) { return 0; }
    Unscaled(int32_t, const uint8_t*, int64_t) {}
    Scales scales(int64_t, int) const { return {}; }
};

struct F32 : Unscaled {
    using Unscaled::Unscaled;
    static constexpr int BYTES = 4;
    static F numbers(const uint8_t* p, Scales) { return bits_of(load(p)); }
};

struct F16 : Unscaled {
    using Unscaled::Unscaled;
    static constexpr int BYTES = 2;
    static F numbers(const uint8_t* p, Scales) { return float16s(p); }
};

struct BF16 : Unscaled {
    using Unscaled::Unscaled;
    static constexpr int BYTES = 2;
    static F numbers(const uint8_t* p, Scales) { return bfloat16s(p); }
};

// Bytes of a sign, an exponent and some bits of a mantissa. Moved to where float32 has exponent and mantissa they are numbers,
// also where the exponent is zero, that are a power of two too small; the scales of groups of columns make up for it. They follow
// in the panel, and are 128 at most, so that their product with that power is finite.
template <int MANTISSA_BITS> struct F8 {
    typedef F Scales;
    static constexpr int BYTES = 1, EXPONENT_BITS = 7 - MANTISSA_BITS, SKIPPED = 8 - EXPONENT_BITS;
    static int64_t scales_bytes(int32_t number, int64_t columns) {
        const layerline::Grouping grouping{number};
        return grouping.groups(columns) * PANEL_ROWS * grouping.group_bytes();
    }

    F8(int32_t number, const uint8_t* panel, int64_t columns)
        : grouping_{number}, small_(panel + whole_chains(columns) * PANEL_ROWS) {}
    F scales(int64_t column, int first_row) const {
        constexpr int LARGER = 128 - (1 << (EXPONENT_BITS - 1));  // how much larger float32 has an exponent of the same value
        const uint8_t* group = small_ + grouping_.group_of(column / 32) * PANEL_ROWS * grouping_.group_bytes();
        return mul(group_scales(grouping_, group, first_row), bits_of(splat((127 + LARGER) << 23)));
    }
    static F numbers(const uint8_t* p, F scales) {
        constexpr uint32_t REST = 127u << (23 - MANTISSA_BITS);
        const I moved = right_signed<SKIPPED>(left<24>(bytes8(p)));  // with the sign in the bits that the exponent skips
        return mul(bits_of(both(moved, splat(static_cast<int32_t>(0x80000000u | REST)))), scales);
    }

  private:
    layerline::Grouping grouping_;
    const uint8_t* small_;
};
typedef F8<3> F8_E4M3;
typedef F8<2> F8_E5M2;

}  // namespace
