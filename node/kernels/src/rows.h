// What is done to rows beside products: norms, rotation, the gate of a feed-forward. Sums are made in sixteen lanes that are
// added in a fixed order, so that they have the same bits on every instruction set.
#pragma once
#include <cmath>

#include "kernels.h"
#include "vectors.h"

namespace {

using layerline::CLAMPED_SWIGLU;
using layerline::GELU_TANH;
using layerline::SIGMOID_GATE;
using layerline::SILU;

inline float sum_of_lanes(const float lanes[PANEL_ROWS]) {
    float sums[8];
    for (int i = 0; i < 8; i++) sums[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++) sums[i] = sums[i] + sums[i + 4];
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

inline float largest_of_lanes(const float lanes[PANEL_ROWS]) {
    float largest = lanes[0];
    for (int i = 1; i < PANEL_ROWS; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

// e to the power of numbers from -87 to 88, to about the last bit; of others that of the nearer end. Cody and Waite's reduction, then a
// polynomial (coefficients of the Cephes library).
inline F exponential(F x) {
    x = greater(splat_float(-87.0f), lesser(splat_float(88.0f), x));  // in this order a NaN stays one
    I whole = to_integers(mul(x, splat_float(1.44269504f)));
    F n = to_floats(whole);
    F r = fma(n, splat_float(-0.693359375f), x);
    r = fma(n, splat_float(2.12194440e-4f), r);
    F y = splat_float(1.9875691500e-4f);
    y = fma(y, r, splat_float(1.3981999507e-3f));
    y = fma(y, r, splat_float(8.3334519073e-3f));
    y = fma(y, r, splat_float(4.1665795894e-2f));
    y = fma(y, r, splat_float(1.6666665459e-1f));
    y = fma(y, r, splat_float(5.0000001201e-1f));
    y = fma(mul(r, r), y, add(r, splat_float(1.0f)));
    return mul(y, bits_of(left<23>(plus(whole, splat(127)))));
}

inline float exponential_of(float x) {
    float lanes[LANES];
    store_floats(lanes, exponential(splat_float(x)));
    return lanes[0];
}

// ln(1 + e^x), as torch has it.
inline float softplus_of(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Calls `work(first, numbers)` for 0, LANES, ... with the numbers that are there; the last may be fewer than LANES.
template <typename Work> inline void in_vectors(int64_t columns, Work work) {
    int64_t whole = columns / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) work(i, LANES);
    if (whole < columns) work(whole, static_cast<int>(columns - whole));
}
inline F load_some(const float* p, int count) {
    if (count == LANES) return load_floats(p);
    float lanes[LANES] = {};
    for (int i = 0; i < count; i++) lanes[i] = p[i];
    return load_floats(lanes);
}
inline void store_some(float* p, F a, int count) {
    if (count == LANES) return store_floats(p, a);
    float lanes[LANES];
    store_floats(lanes, a);
    for (int i = 0; i < count; i++) p[i] = lanes[i];
}

// Root-mean-square norm (Zhang and Sennrich, 2019); without a weight the numbers are only scaled.
inline void norm_row(const float* in, float* out, const float* weight, int64_t columns, float epsilon) {
    float lanes[PANEL_ROWS];
    F squares[WIDTH];
    for (int v = 0; v < WIDTH; v++) squares[v] = splat_float(0.0f);
    for (int64_t i = 0; i < columns; i += PANEL_ROWS) {
        for (int v = 0; v < WIDTH; v++) {
            int64_t first = i + LANES * v, left = columns - first;
            if (left <= 0) break;
            F numbers = load_some(in + first, left < LANES ? static_cast<int>(left) : LANES);
            squares[v] = fma(numbers, numbers, squares[v]);
        }
    }
    for (int v = 0; v < WIDTH; v++) store_floats(lanes + LANES * v, squares[v]);
    F scale = splat_float(1.0f / std::sqrt(sum_of_lanes(lanes) / static_cast<float>(columns) + epsilon));
    in_vectors(columns, [&](int64_t i, int count) {
        F normed = mul(load_some(in + i, count), scale);
        store_some(out + i, weight ? mul(normed, load_some(weight + i, count)) : normed, count);
    });
}

// Turns each pair of neighbouring numbers: `turns` has a cosine and a sine for each pair.
inline void turn_head(float* head, const float* turns, int64_t columns) {
    for (int64_t i = 0; i + 1 < columns; i += 2) {
        float x = head[i], y = head[i + 1], cosine = turns[i], sine = turns[i + 1];
        float xc = x * cosine, ys = y * sine, xs = x * sine, yc = y * cosine;
        head[i] = xc - ys;
        head[i + 1] = xs + yc;
    }
}

// cap * tanh(number / cap), as 1 - 2 / (e^2x + 1).
inline F capped(F number, float cap) {
    const F one = splat_float(1.0f), two = splat_float(2.0f);
    F power = exponential(mul(two, div(number, splat_float(cap))));
    return mul(sub(one, div(two, add(power, one))), splat_float(cap));
}

inline void cap_row(float* numbers, int64_t columns, float cap) {
    in_vectors(columns, [&](int64_t i, int count) { store_some(numbers + i, capped(load_some(numbers + i, count), cap), count); });
}

constexpr float SWIGLU_ALPHA = 1.702f, SWIGLU_LIMIT = 7.0f;

// activation(gate) * up. silu(x) = x / (1 + e^-x); gelu(x), by tanh, is x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
// (Hendrycks and Gimpel, 2016); the clamped one of gpt-oss is x / (1 + e^-ax) * (up + 1), x at most a limit and up within it. A
// sigmoid has 1 in the place of x.
inline void gate_row(const float* gate, const float* up, float* out, int64_t columns, int kind) {
    const F one = splat_float(1.0f), zero = splat_float(0.0f);
    in_vectors(columns, [&](int64_t i, int count) {
        F x = load_some(gate + i, count), own = load_some(up + i, count);
        if (kind == CLAMPED_SWIGLU) {
            const F limit = splat_float(SWIGLU_LIMIT), least = splat_float(-SWIGLU_LIMIT);
            x = lesser(limit, x);  // in this order a NaN stays one
            own = add(one, greater(least, lesser(limit, own)));
        }
        F power = kind == CLAMPED_SWIGLU ? mul(splat_float(SWIGLU_ALPHA), x) : x;
        if (kind == GELU_TANH) {
            F cube = mul(mul(x, x), x);
            power = mul(splat_float(2.0f * 0.7978845608f), fma(splat_float(0.044715f), cube, x));
        }
        F activated = div(kind == SIGMOID_GATE ? one : x, add(one, exponential(sub(zero, power))));
        store_some(out + i, mul(activated, own), count);
    });
}

}  // namespace
