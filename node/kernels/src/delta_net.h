// The gated delta rule (Yang et al., Gated Delta Networks, 2024), row by row: of each value head a state [key_dim, value_dim]
// fades, is corrected at a row's key, and is read by its query. Some columns of it at a time are in the nearest cache, for some rows
// of a run. What a row gives has the same bits wherever runs are cut.
#pragma once
#include "rows.h"

namespace {

using layerline::DELTA_COLUMNS;
using layerline::DeltaNet;
using layerline::Rows;
using layerline::StateRun;

constexpr int DELTA_VECTORS = DELTA_COLUMNS / LANES;
constexpr int64_t DELTA_ROWS = 16;

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

using DeltaSums = F[DELTA_VECTORS];

// What one key reads of the state, added to `sums`.
inline void read_key(const float* state, float key, DeltaSums& sums) {
    const F own = splat_float(key);
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) sums[v] = fma(own, load_floats(state + LANES * v), sums[v]);
}

// Lets the numbers of one key fade and corrects them; adds to `sums` what the query then reads of them.
inline void change_key(float* state, float key, float query, F kept, const DeltaSums& change, DeltaSums& sums) {
    const F own = splat_float(key), asked = splat_float(query);
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) {
        const F after = fma(own, change[v], mul(kept, load_floats(state + LANES * v)));
        store_floats(state + LANES * v, after);
        sums[v] = fma(asked, after, sums[v]);
    }
}

// What keys read is added up in two sums a column, in turns, so that few additions wait for others.
inline void delta_row(float* state, int key_dim, const float* query, const float* key, const float* value, DeltaStep step,
                      float* made) {
    DeltaSums even, odd, change;
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) even[v] = odd[v] = splat_float(0.0f);
    for (int n = 0; n + 1 < key_dim; n += 2) {
        read_key(state + n * DELTA_COLUMNS, key[n], even);
        read_key(state + (n + 1) * DELTA_COLUMNS, key[n + 1], odd);
    }
    if (key_dim % 2) read_key(state + (key_dim - 1) * DELTA_COLUMNS, key[key_dim - 1], even);
    const F kept = splat_float(step.kept), written = splat_float(step.written);
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) {
        change[v] = mul(sub(load_floats(value + LANES * v), mul(kept, add(even[v], odd[v]))), written);
        even[v] = splat_float(0.0f);
    }
    for (int n = 0; n < key_dim; n++) change_key(state + n * DELTA_COLUMNS, key[n], query[n], kept, change, even);
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) store_floats(made + LANES * v, even[v]);
}

// Some rows of a run, and what each does to the state of the head.
struct DeltaRows {
    int64_t first, count;
    DeltaStep steps[DELTA_ROWS];
};

// Copies some numbers of a row, mostly as many as go together.
inline void copy_columns(const float* from, float* to, int count) {
    if (count < DELTA_COLUMNS) return void(std::memcpy(to, from, sizeof(float) * count));
UNROLL(8)
    for (int v = 0; v < DELTA_VECTORS; v++) store_floats(to + LANES * v, load_floats(from + LANES * v));
}

// Copies `count` columns of a state of `stride` columns to where as many go together, or back.
inline void take_columns(const float* numbers, int key_dim, int64_t stride, int count, float* state) {
    if (!numbers || count < DELTA_COLUMNS) std::memset(state, 0, sizeof(float) * DELTA_COLUMNS * key_dim);
    for (int n = 0; numbers && n < key_dim; n++) copy_columns(numbers + n * stride, state + n * DELTA_COLUMNS, count);
}
inline void put_columns(const float* state, int key_dim, int64_t stride, int count, float* numbers) {
    for (int n = 0; n < key_dim; n++) copy_columns(state + n * DELTA_COLUMNS, numbers + n * stride, count);
}

// The rows' values are those from number `value` on; what is made of them goes to number `made` on.
inline void delta_columns(const DeltaNet& own, const DeltaHead& places, Rows in, Rows out, const DeltaRows& rows, int64_t value,
                          int64_t made, int count, float* state) {
    alignas(64) float own_value[DELTA_COLUMNS] = {}, own_made[DELTA_COLUMNS];
    for (int64_t i = 0; i < rows.count; i++) {
        const float* row = in.data + (rows.first + i) * in.stride;
        copy_columns(row + value, own_value, count);
        delta_row(state, own.key_dim, row + places.query, row + places.key, own_value, rows.steps[i], own_made);
        copy_columns(own_made, out.data + (rows.first + i) * out.stride + made, count);
    }
}

// What one value head makes of the rows of a run. A few rows go through all columns before the next ones do, so that rows are
// fetched once; columns lie in `scratch` until the last row, all of them if there are several such groups of rows.
inline void delta_run(const DeltaNet& own, int head, const DeltaHead& places, Rows in, Rows out, const StateRun& run,
                      const float* before, float* after, float* scratch) {
    const int64_t made = static_cast<int64_t>(head) * own.value_dim, end = run.first_row + run.rows;
    for (int64_t first_row = run.first_row; first_row < end; first_row += DELTA_ROWS) {
        DeltaRows rows = {first_row, end - first_row < DELTA_ROWS ? end - first_row : DELTA_ROWS, {}};
        for (int64_t i = 0; i < rows.count; i++) {
            const float* row = in.data + (first_row + i) * in.stride;
            rows.steps[i] = step_of(own, head, row[places.written], row[places.forgotten]);
        }
        for (int64_t first = 0; first < own.value_dim; first += DELTA_COLUMNS) {
            const int count = own.value_dim - first < DELTA_COLUMNS ? static_cast<int>(own.value_dim - first) : DELTA_COLUMNS;
            float* state = run.rows <= DELTA_ROWS ? scratch : scratch + first * own.key_dim;
            if (first_row == run.first_row) {
                take_columns(before ? before + first : nullptr, own.key_dim, own.value_dim, count, state);
            }
            delta_columns(own, places, in, out, rows, places.value + first, made + first, count, state);
            if (first_row + rows.count == end) put_columns(state, own.key_dim, own.value_dim, count, after + first);
        }
        for (int64_t row = first_row; row < first_row + rows.count; row++) {
            float* place = out.data + row * out.stride + made;
            norm_row(place, place, own.norm, own.value_dim, own.epsilon);
            gate_row(in.data + row * in.stride + places.gate, place, place, own.value_dim, SILU);
        }
    }
}

// What one value head makes of all rows of some runs, each of which may go on from the one before. `scratch` has room for its
// state, in whole columns that go together.
NOT_INLINED void delta_head(const DeltaNet& own, int head, Rows in, Rows out, const StateRun* runs, int64_t run_count,
                            float* states, int64_t slot_numbers, uint8_t* scratch) {
    const DeltaHead places = places_of(own, head);
    const int64_t begin = own.state_offset + static_cast<int64_t>(head) * own.key_dim * own.value_dim;
    for (const StateRun* run = runs; run < runs + run_count; run++) {
        const float* before = run->source < 0 ? nullptr : states + run->source * slot_numbers + begin;
        float* after = states + run->target * slot_numbers + begin;
        delta_run(own, head, places, in, out, *run, before, after, reinterpret_cast<float*>(scratch));
    }
}

}  // namespace
