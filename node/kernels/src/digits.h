// Rows as fixed-point numbers: of every 32 columns integers in units of the largest, of 8, 16 or 24 bits (1, 2 or 3 digits
// of base 256). Products with a matrix of integers are exact then, whatever the instruction set.
//
// Rows come in groups that are multiplied together. A group lies block by block, and in a block row by row.
#pragma once
#include "vectors.h"

namespace {

constexpr int BLOCK = 32;  // columns
constexpr float TINY = 1e-30f;  // a block of nothing larger counts as zero: its scale would have no inverse

template <int DIGITS> struct RowBlock {
    static constexpr int PLANES = planes(DIGITS);
    uint8_t digits[4 * steps(DIGITS) * PLANES];
    int32_t sums[PLANES][2];  // of each half of the columns
    float unit;               // the value of 1
    float values[3];          // the sums of the numbers: first half, second half, all
};

template <int DIGITS> inline void make_row_block(const float* row, RowBlock<DIGITS>& out) {
    constexpr float MOST = DIGITS == 1 ? 127.0f : DIGITS == 2 ? 127.0f * 256 : 127.0f * 65536;
    F most = splat_float(0.0f), poison = splat_float(0.0f);
    for (int i = 0; i < BLOCK; i += LANES) {
        F numbers = load_floats(row + i);
        most = greater(most, magnitude(numbers));
        poison = add(poison, sub(numbers, numbers));  // 0, unless one is infinite or no number
    }
    float lanes[2][LANES];
    store_floats(lanes[0], most);
    store_floats(lanes[1], poison);
    float largest = 0.0f, spoilt = 0.0f;
    for (int i = 0; i < LANES; i++) {
        largest = lanes[0][i] > largest ? lanes[0][i] : largest;
        spoilt += lanes[1][i];
    }
    if (largest < TINY) largest = 0.0f;
    F scale = splat_float(largest > 0.0f ? MOST / largest : 0.0f);
    int32_t numbers[BLOCK];
    for (int i = 0; i < BLOCK; i += LANES) store(numbers + i, to_integers(mul(load_floats(row + i), scale)));
    put_digits<DIGITS>(numbers, out.digits, out.sums);
    out.unit = largest / MOST + spoilt;
    int32_t halves[2];
    for (int half = 0; half < 2; half++) {
        uint32_t sum = 0;
        for (int i = 16 * half; i < 16 * half + 16; i++) sum += static_cast<uint32_t>(numbers[i]);
        halves[half] = static_cast<int32_t>(sum);
        out.values[half] = out.unit * static_cast<float>(halves[half]);
    }
    out.values[2] = out.unit * static_cast<float>(halves[0] + halves[1]);
}

// What a matrix's offset takes away from a sum of products: the offset times the digits, in 32 bits, whatever overflows.
inline int32_t offset_taken(int offset, int32_t first, int32_t second) {
    return static_cast<int32_t>(0u - static_cast<uint32_t>(offset) * (static_cast<uint32_t>(first) + static_cast<uint32_t>(second)));
}

// The rows of the next group, of `left` that remain.
inline int group_rows(int left, int most) {
    constexpr int SIZES[] = {16, 12, 8, 6, 4, 3, 2};
    for (int size : SIZES) {
        if (size <= left && size <= most) return size;
    }
    return 1;
}

// Rows [row, row + count) of a group of `rows`, from rows of `columns` floats, `stride` apart; in `order`, if there is one.
template <int DIGITS>
inline void make_group(const float* rows, int64_t stride, const int32_t* order, int count, int64_t columns, uint8_t* place) {
    RowBlock<DIGITS>* out = reinterpret_cast<RowBlock<DIGITS>*>(place);
    for (int64_t block = 0; block < columns / BLOCK; block++) {
        for (int row = 0; row < count; row++) {
            float ordered[BLOCK];
            const float* numbers = rows + row * stride + BLOCK * block;
            if (order) {
                for (int i = 0; i < BLOCK; i++) ordered[i] = rows[row * stride + order[BLOCK * block + i]];
                numbers = ordered;
            }
            make_row_block<DIGITS>(numbers, *out++);
        }
    }
}

}  // namespace
