// The gated delta rule (Yang et al., Gated Delta Networks, 2024), row by row: of each value head a state [key_dim, value_dim]
// fades, is corrected at a row's key, and is read by its query. Some columns of it at a time are copied to where they stay in the
// nearest cache for all rows of a run. What a row gives has the same bits wherever runs are cut.
#pragma once
#include "rows.h"

namespace {

using layerline::DELTA_COLUMNS;
using layerline::DeltaNet;
using layerline::Rows;
using layerline::StateRun;

constexpr int DELTA_VECTORS = DELTA_COLUMNS / LANES;

// What a row does to the state of a head: what is left of it, and how much of the correction is written.
struct DeltaStep {
    float kept, written;
};

// Where the numbers of one head lie in the rows.
struct DeltaHead {
    int64_t query, key, value, gate, written, forgotten;
};

inline DeltaHead places_of(const DeltaNet& own, int head) {
    const int readers = own.value_heads / own.key_heads, key_head = own.tiled ? head % own.key_heads : head / readers;
    const int64_t keys = static_cast<int64_t>(own.key_heads) * own.key_dim;
    const int64_t values = static_cast<int64_t>(own.value_heads) * own.value_dim;
    const int64_t key = static_cast<int64_t>(key_head) * own.key_dim, value = static_cast<int64_t>(head) * own.value_dim;
    const int64_t behind = 2 * keys + 2 * values + head;
    return {key, keys + key, 2 * keys + value, 2 * keys + values + value, behind, behind + own.value_heads};
}

inline DeltaStep step_of(const DeltaNet& own, int head, float written, float forgotten) {
    const float step = softplus_of(forgotten + own.step_bias[head]);
    return {std::exp(own.decay[head] * step), 1.0f / (1.0f + std::exp(-written))};
}

// Two sums a column, of keys in turns, so that few additions wait for others.
inline void delta_row(float* state, int key_dim, const float* query, const float* key, const float* value, DeltaStep step,
                      float* made) {
    F sums[2][DELTA_VECTORS], change[DELTA_VECTORS];
    auto in_turns = [&](auto visit) {
        for (int p = 0; p < 2; p++) {
            for (int v = 0; v < DELTA_VECTORS; v++) sums[p][v] = splat_float(0.0f);
        }
        int n = 0;
        for (; n + 1 < key_dim; n += 2) {
            visit(n, sums[0]);
            visit(n + 1, sums[1]);
        }
        if (n < key_dim) visit(n, sums[0]);
    };
    in_turns([&](int n, F* sum) {
        const F own = splat_float(key[n]);
UNROLL(8)
        for (int v = 0; v < DELTA_VECTORS; v++) {
            sum[v] = fma(own, load_floats(state + n * DELTA_COLUMNS + LANES * v), sum[v]);
        }
    });
    const F kept = splat_float(step.kept), written = splat_float(step.written);
    for (int v = 0; v < DELTA_VECTORS; v++) {
        const F read = mul(kept, add(sums[0][v], sums[1][v]));
        change[v] = mul(sub(load_floats(value + LANES * v), read), written);
    }
    in_turns([&](int n, F* sum) {
        const F own = splat_float(key[n]), asked = splat_float(query[n]);
UNROLL(8)
        for (int v = 0; v < DELTA_VECTORS; v++) {
            float* place = state + n * DELTA_COLUMNS + LANES * v;
            const F after = fma(own, change[v], mul(kept, load_floats(place)));
            store_floats(place, after);
            sum[v] = fma(asked, after, sum[v]);
        }
    });
    for (int v = 0; v < DELTA_VECTORS; v++) store_floats(made + LANES * v, add(sums[0][v], sums[1][v]));
}

// The columns from `first` on, `count` of them, of all rows of a run.
inline void delta_columns(const DeltaNet& own, int head, const DeltaHead& places, Rows in, Rows out, const StateRun& run,
                          const float* before, float* after, int64_t first, int count, float* state) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(count);
    alignas(64) float value[DELTA_COLUMNS] = {}, made[DELTA_COLUMNS];
    if (!before || count < DELTA_COLUMNS) std::memset(state, 0, sizeof(float) * DELTA_COLUMNS * own.key_dim);
    for (int n = 0; before && n < own.key_dim; n++) {
        std::memcpy(state + n * DELTA_COLUMNS, before + n * own.value_dim + first, bytes);
    }
    for (int64_t i = run.first_row; i < run.first_row + run.rows; i++) {
        const float* row = in.data + i * in.stride;
        std::memcpy(value, row + places.value + first, bytes);
        const DeltaStep step = step_of(own, head, row[places.written], row[places.forgotten]);
        delta_row(state, own.key_dim, row + places.query, row + places.key, value, step, made);
        std::memcpy(out.data + i * out.stride + static_cast<int64_t>(head) * own.value_dim + first, made, bytes);
    }
    for (int n = 0; n < own.key_dim; n++) {
        std::memcpy(after + n * own.value_dim + first, state + n * DELTA_COLUMNS, bytes);
    }
}

// What one value head makes of all rows of some runs, each of which may go on from the one before. `scratch` has room for as many
// columns of a state as go together.
NOT_INLINED void delta_head(const DeltaNet& own, int head, Rows in, Rows out, const StateRun* runs, int64_t run_count,
                            float* states, int64_t slot_numbers, uint8_t* scratch) {
    const DeltaHead places = places_of(own, head);
    const int64_t begin = own.state_offset + static_cast<int64_t>(head) * own.key_dim * own.value_dim;
    for (const StateRun* run = runs; run < runs + run_count; run++) {
        const float* before = run->source < 0 ? nullptr : states + run->source * slot_numbers + begin;
        float* after = states + run->target * slot_numbers + begin;
        for (int64_t first = 0; first < own.value_dim; first += DELTA_COLUMNS) {
            const int64_t left = own.value_dim - first;
            const int count = left < DELTA_COLUMNS ? static_cast<int>(left) : DELTA_COLUMNS;
            delta_columns(own, head, places, in, out, *run, before, after, first, count, reinterpret_cast<float*>(scratch));
        }
        for (int64_t i = run->first_row; i < run->first_row + run->rows; i++) {
            float* made = out.data + i * out.stride + static_cast<int64_t>(head) * own.value_dim;
            norm_row(made, made, own.norm, own.value_dim, own.epsilon);
            gate_row(in.data + i * in.stride + places.gate, made, made, own.value_dim, SILU);
        }
    }
}

}  // namespace
