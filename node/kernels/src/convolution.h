// A causal convolution over the rows of a sequence, of each channel by itself. The rows before a run are its state.
#pragma once
#include "rows.h"

namespace {

using layerline::Convolution;
using layerline::MOST_TAPS;
using layerline::Rows;
using layerline::StateRun;

// The channels from `first` on, as many as a vector has or `count`, of the rows of one run.
inline void convolve_vector(const Convolution& own, Rows in, Rows out, const StateRun& run, float* states, int64_t slot_numbers,
                            int64_t first, int count) {
    const int before = own.taps - 1;
    F past[MOST_TAPS], weight[MOST_TAPS];
    for (int t = 0; t < before; t++) {
        const float* kept = states + run.source * slot_numbers + t * own.channels + first;
        past[t] = run.source < 0 ? splat_float(0.0f) : load_some(kept, count);
    }
    for (int t = 0; t < own.taps; t++) weight[t] = load_some(own.weight + t * own.channels + first, count);
    const F bias = own.bias ? load_some(own.bias + first, count) : splat_float(0.0f);
    for (int64_t row = run.first_row; row < run.first_row + run.rows; row++) {
        const float* numbers = in.data + row * in.stride + first;
        F x = load_some(numbers + own.column, count);
        if (own.times_before >= 0) x = mul(load_some(numbers + own.times_before, count), x);
        F sum = splat_float(0.0f);
        for (int t = 0; t < before; t++) sum = fma(past[t], weight[t], sum);
        sum = add(fma(x, weight[before], sum), bias);
        if (own.silu) sum = div(sum, add(splat_float(1.0f), exponential(sub(splat_float(0.0f), sum))));
        if (own.times_after >= 0) sum = mul(load_some(numbers + own.times_after, count), sum);
        store_some(out.data + row * out.stride + own.out_column + first, sum, count);
        for (int t = 0; t + 1 < before; t++) past[t] = past[t + 1];
        past[before - 1] = x;
    }
    for (int t = 0; t < before; t++) store_some(states + run.target * slot_numbers + t * own.channels + first, past[t], count);
}

// The channels from `first` to `end` of all rows of some runs, each of which may go on from the one before.
void convolve(const Convolution& own, Rows in, Rows out, const StateRun* runs, int64_t run_count, float* states,
              int64_t slot_numbers, int64_t first, int64_t end) {
    for (const StateRun* run = runs; run < runs + run_count; run++) {
        in_vectors(end - first, [&](int64_t at, int count) {
            convolve_vector(own, in, out, *run, states, slot_numbers, first + at, count);
        });
    }
}

}  // namespace
