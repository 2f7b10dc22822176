// Fixed-point numbers as bytes of base 256: for instruction sets that multiply bytes.
#pragma once

namespace {

// One block of 32 numbers: their highest digits first, each digit's plane in the order of the columns.
template <int DIGITS> inline void put_digits(const int32_t numbers[32], uint8_t* place, int32_t sums[planes(DIGITS)][2]) {
    int8_t* out = reinterpret_cast<int8_t*>(place);
    std::memset(sums, 0, sizeof(int32_t[planes(DIGITS)][2]));
    for (int column = 0; column < 32; column++) {
        int32_t rest = numbers[column];
        for (int digit = DIGITS - 1; digit >= 0; digit--) {
            int32_t higher = digit ? (rest + 128) >> 8 : 0;
            int32_t own = rest - higher * 256;
            out[32 * digit + column] = static_cast<int8_t>(own);
            sums[digit][column / 16] += own;
            rest = higher;
        }
    }
}

}  // namespace
