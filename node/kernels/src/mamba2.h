// The state space model of Mamba 2 (Dao and Gu, Transformers are SSMs, 2024), row by row: of each head a state [state_dim, head_dim]
// decays, is moved by a row, and is read by it. A row by itself costs three operations a number of the state, chunks of rows by
// matrices no less than two; and what it gives has the same bits wherever runs are cut.
#pragma once
#include "rows.h"

namespace {

using layerline::Mamba2;
using layerline::Rows;
using layerline::StateRun;

constexpr int MAMBA_VECTORS = 4;  // of a state's rows that are changed together: sums of as many do not wait for each other
constexpr int MAMBA_ROWS = 32;    // whose inputs stay in a near cache while one such part of the state after the other is changed

// How a row changes the state of a head: what is left of it, and how far the row moves it.
struct MambaStep {
    float kept, step;
};

// Where the numbers of one head lie in the rows: x, what moves the state, what reads it, and how far a row steps.
struct MambaHead {
    int64_t x, into, out, step;
};

inline MambaHead places_of(const Mamba2& own, int head) {
    const int64_t numbers = static_cast<int64_t>(own.heads) * own.head_dim, keys = static_cast<int64_t>(own.groups) * own.state_dim;
    const int64_t group = head / (own.heads / own.groups) * static_cast<int64_t>(own.state_dim);
    const int64_t into = 2 * numbers + group;
    return {numbers + static_cast<int64_t>(head) * own.head_dim, into, into + keys, 2 * numbers + 2 * keys + head};
}

// VECTORS of the numbers of each row of the state, which begin `stride` apart: all of them, or `count` numbers of one.
template <int VECTORS>
inline void mamba_row(float* state, int64_t stride, int state_dim, const float* x, const float* into, const float* out,
                      MambaStep step, float skip, float* made, int count) {
    F moved[VECTORS], sums[VECTORS];
UNROLL(4)
    for (int v = 0; v < VECTORS; v++) {
        moved[v] = mul(splat_float(step.step), load_some(x + LANES * v, count));
        sums[v] = splat_float(0.0f);
    }
    const F kept = splat_float(step.kept);
    for (int n = 0; n < state_dim; n++) {
        const F own = splat_float(into[n]), asked = splat_float(out[n]);
UNROLL(4)
        for (int v = 0; v < VECTORS; v++) {
            float* place = state + n * stride + LANES * v;
            const F after = fma(own, moved[v], mul(kept, load_some(place, count)));
            store_some(place, after, count);
            sums[v] = fma(asked, after, sums[v]);
        }
    }
UNROLL(4)
    for (int v = 0; v < VECTORS; v++) {
        store_some(made + LANES * v, fma(splat_float(skip), load_some(x + LANES * v, count), sums[v]), count);
    }
}

// Some rows of a run.
inline void mamba_rows(const Mamba2& own, int head, const MambaHead& places, Rows in, Rows out, int64_t first_row, int rows,
                       float* state) {
    constexpr int TOGETHER = MAMBA_VECTORS * LANES;
    MambaStep steps[MAMBA_ROWS];
    for (int i = 0; i < rows; i++) {
        const float step = softplus_of(in.data[(first_row + i) * in.stride + places.step] + own.step_bias[head]);
        steps[i] = {exponential_of(own.decay[head] * step), step};
    }
    const int64_t size = own.head_dim;
    for (int64_t first = 0, done = 0; first < size; first += done) {
        const int64_t left = size - first;
        done = left >= TOGETHER ? TOGETHER : left < LANES ? left : LANES;
        for (int i = 0; i < rows; i++) {
            const float* row = in.data + (first_row + i) * in.stride;
            float* made = out.data + (first_row + i) * out.stride + head * size + first;
            const float *x = row + places.x + first, *into = row + places.into, *read = row + places.out;
            if (done == TOGETHER) {
                mamba_row<MAMBA_VECTORS>(state + first, size, own.state_dim, x, into, read, steps[i], own.skip[head], made, LANES);
            } else {
                const int count = static_cast<int>(done);
                mamba_row<1>(state + first, size, own.state_dim, x, into, read, steps[i], own.skip[head], made, count);
            }
        }
    }
}

// What one head makes of all rows of some runs, each of which may go on from the one before.
NOT_INLINED void mamba_head(const Mamba2& own, int head, Rows in, Rows out, const StateRun* runs, int64_t run_count, float* states,
                            int64_t slot_numbers) {
    const MambaHead places = places_of(own, head);
    const int64_t numbers = static_cast<int64_t>(own.state_dim) * own.head_dim, begin = own.state_offset + head * numbers;
    for (const StateRun* run = runs; run < runs + run_count; run++) {
        float* state = states + run->target * slot_numbers + begin;
        const size_t bytes = sizeof(float) * static_cast<size_t>(numbers);
        if (run->source < 0) {
            std::memset(state, 0, bytes);
        } else if (run->source != run->target) {
            std::memcpy(state, states + run->source * slot_numbers + begin, bytes);
        }
        for (int64_t row = run->first_row, end = row + run->rows; row < end; row += MAMBA_ROWS) {
            const int rows = end - row < MAMBA_ROWS ? static_cast<int>(end - row) : MAMBA_ROWS;
            mamba_rows(own, head, places, in, out, row, rows, state);
        }
    }
}

}  // namespace
