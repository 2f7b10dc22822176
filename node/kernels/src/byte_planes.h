// For instruction sets that multiply bytes: each digit of a row is a plane, and the sums of all planes make one float.
#pragma once

namespace {

constexpr int planes(int digits) { return digits; }
template <int DIGITS> inline F combined(const I sums[planes(DIGITS)]) {
    if (DIGITS == 1) return to_floats(sums[0]);
    F high = to_floats(plus(left<8>(sums[0]), sums[DIGITS > 1 ? 1 : 0]));
    return DIGITS == 3 ? add(mul(high, splat_float(256.0f)), to_floats(sums[DIGITS - 1])) : high;
}

}  // namespace
