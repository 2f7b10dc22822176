// Attention over pages, whose tiles are told in tiles.h.
//
// A row goes through blocks of 64 positions, counted from position 0, with a running maximum (Milakov and Gimelshein, Online
// normalizer calculation for softmax, 2018). A block in which it sees nothing leaves its sums as they are to the bit, so
// that what a row reads depends neither on the rows beside it nor on how they came.
#pragma once
#include "tiles.h"

namespace {

using layerline::AttentionForm;
using layerline::Rows;
using layerline::StepRow;

constexpr int BLOCK_TILES = 4, BLOCK_POSITIONS = TILE * BLOCK_TILES;
constexpr float LEAST = -3e38f;  // finite, so that differences of it are numbers

// What one query head of one row has read so far.
struct Reader {
    const float* query;
    float* sums;  // [stride]
    float most, total;
    int32_t first, last;  // positions that it sees
};

constexpr int READERS = WIDTH == 1 ? 12 : WIDTH == 2 ? 6 : 4;  // at a time

// The scores of N readers with TILES tiles of keys, of which as many numbers lie between two.
template <int N, int TILES>
inline void score_tiles(const Reader* readers, const float* keys, int head_dim, float* scores) {
    F sums[N][TILES][WIDTH];
UNROLL(16)
    for (int n = 0; n < N; n++) {
        for (int t = 0; t < TILES; t++) {
            for (int v = 0; v < WIDTH; v++) sums[n][t][v] = splat_float(0.0f);
        }
    }
    for (int i = 0; i < head_dim; i++) {
        F key[TILES][WIDTH];
UNROLL(2)
        for (int t = 0; t < TILES; t++) {
UNROLL(4)
            for (int v = 0; v < WIDTH; v++) key[t][v] = load_floats(keys + (t * head_dim + i) * TILE + LANES * v);
        }
UNROLL(16)
        for (int n = 0; n < N; n++) {
            F number = splat_float(readers[n].query[i]);
UNROLL(2)
            for (int t = 0; t < TILES; t++) {
UNROLL(4)
                for (int v = 0; v < WIDTH; v++) sums[n][t][v] = fma(number, key[t][v], sums[n][t][v]);
            }
        }
    }
UNROLL(16)
    for (int n = 0; n < N; n++) {
        for (int t = 0; t < TILES; t++) {
            for (int v = 0; v < WIDTH; v++) store_floats(scores + n * BLOCK_POSITIONS + t * TILE + LANES * v, sums[n][t][v]);
        }
    }
}

// Adds to COLUMNS sixteens of the sums of N readers the values of a block, each weighed.
template <int N, int COLUMNS>
inline void sum_values(const Reader* readers, const float* values, int stride, int first, const float* weights) {
    F sums[N][COLUMNS][WIDTH];
UNROLL(16)
    for (int n = 0; n < N; n++) {
        for (int c = 0; c < COLUMNS; c++) {
            for (int v = 0; v < WIDTH; v++) sums[n][c][v] = load_floats(readers[n].sums + first + TILE * c + LANES * v);
        }
    }
    for (int position = 0; position < BLOCK_POSITIONS; position++) {
        F value[COLUMNS][WIDTH];
UNROLL(2)
        for (int c = 0; c < COLUMNS; c++) {
UNROLL(4)
            for (int v = 0; v < WIDTH; v++) value[c][v] = load_floats(values + position * stride + first + TILE * c + LANES * v);
        }
UNROLL(16)
        for (int n = 0; n < N; n++) {
            F weight = splat_float(weights[n * BLOCK_POSITIONS + position]);
UNROLL(2)
            for (int c = 0; c < COLUMNS; c++) {
UNROLL(4)
                for (int v = 0; v < WIDTH; v++) sums[n][c][v] = fma(weight, value[c][v], sums[n][c][v]);
            }
        }
    }
UNROLL(16)
    for (int n = 0; n < N; n++) {
        for (int c = 0; c < COLUMNS; c++) {
            for (int v = 0; v < WIDTH; v++) store_floats(readers[n].sums + first + TILE * c + LANES * v, sums[n][c][v]);
        }
    }
}

// Makes scores of a block to weights, relative to the new maximum, to which what was read before is brought as well.
inline void weigh(Reader& reader, const AttentionForm& form, int64_t block, int stride, float* scores) {
    const int64_t begin = block * BLOCK_POSITIONS;
    const int from = reader.first > begin ? static_cast<int>(reader.first - begin < BLOCK_POSITIONS ? reader.first - begin : BLOCK_POSITIONS) : 0;
    const int to = reader.last - begin < BLOCK_POSITIONS ? static_cast<int>(reader.last - begin) + 1 : BLOCK_POSITIONS;
    if (from >= to) {
        std::memset(scores, 0, sizeof(float) * BLOCK_POSITIONS);
        return;
    }
    for (int i = 0; i < BLOCK_POSITIONS; i += LANES) {
        F score = mul(load_floats(scores + i), splat_float(form.scale));
        store_floats(scores + i, form.soft_cap > 0.0f ? capped(score, form.soft_cap) : score);
    }
    for (int i = 0; i < from; i++) scores[i] = LEAST;
    for (int i = to; i < BLOCK_POSITIONS; i++) scores[i] = LEAST;
    float most[PANEL_ROWS], totals[PANEL_ROWS];
    for (int v = 0; v < TILE; v += LANES) {
        F largest = load_floats(scores + v);
        for (int t = 1; t < BLOCK_TILES; t++) largest = greater(largest, load_floats(scores + TILE * t + v));
        store_floats(most + v, largest);
    }
    const float largest = largest_of_lanes(most), reference = largest > reader.most ? largest : reader.most;
    for (int i = 0; i < BLOCK_POSITIONS; i += LANES) {
        store_floats(scores + i, exponential(sub(load_floats(scores + i), splat_float(reference))));
    }
    for (int i = 0; i < from; i++) scores[i] = 0.0f;
    for (int i = to; i < BLOCK_POSITIONS; i++) scores[i] = 0.0f;
    for (int v = 0; v < TILE; v += LANES) {
        F total = load_floats(scores + v);
        for (int t = 1; t < BLOCK_TILES; t++) total = add(total, load_floats(scores + TILE * t + v));
        store_floats(totals + v, total);
    }
    const float kept = reader.most == reference ? 1.0f : exponential_of(reader.most - reference);
    reader.total = reader.total * kept + sum_of_lanes(totals);
    reader.most = reference;
    if (kept != 1.0f) {
        for (int i = 0; i < stride; i += LANES) {
            store_floats(reader.sums + i, mul(load_floats(reader.sums + i), splat_float(kept)));
        }
    }
}

template <int N>
NOT_INLINED void read_block(Reader* readers, const AttentionForm& form, int64_t block, const float* keys,
                                          const float* values, int head_dim, int stride) {
    constexpr int TOGETHER = 2 * N <= READERS ? 2 : 1;  // tiles of keys, and sixteens of values
    alignas(64) float scores[N * BLOCK_POSITIONS];
    for (int tile = 0; tile < BLOCK_TILES; tile += TOGETHER) {
        score_tiles<N, TOGETHER>(readers, keys + tile * TILE * head_dim, head_dim, scores + tile * TILE);
    }
    for (int n = 0; n < N; n++) weigh(readers[n], form, block, stride, scores + n * BLOCK_POSITIONS);
    int first = 0;
    for (; first + TOGETHER * TILE <= stride; first += TOGETHER * TILE) {
        sum_values<N, TOGETHER>(readers, values, stride, first, scores);
    }
    for (; first < stride; first += TILE) sum_values<N, 1>(readers, values, stride, first, scores);
}

// `row_count` rows of one sequence read from one key-value head; they share the tiles of the last one.
inline void attend_rows(const Pages& pages, const AttentionForm& form, const StepRow* rows, int row_count, int kv_head,
                        Rows queries, Rows out, uint8_t* scratch) {
    const int group = form.heads / pages.kv_heads, stride = (pages.value_dim + TILE - 1) / TILE * TILE;
    const int reader_count = row_count * group;
    float* keys = reinterpret_cast<float*>(scratch);
    float* values = keys + BLOCK_POSITIONS * pages.head_dim;
    float* sums = values + BLOCK_POSITIONS * stride;
    Reader* readers = reinterpret_cast<Reader*>(sums + static_cast<int64_t>(reader_count) * stride);
    int32_t first = INT32_MAX, last = 0;
    for (int i = 0; i < reader_count; i++) {
        const StepRow& row = rows[i / group];
        const int head = kv_head * group + i % group;
        int32_t sees_from = form.window && row.position >= form.window ? row.position - form.window + 1 : 0;
        if (form.chunk) sees_from = row.position - row.position % form.chunk;
        sees_from = sees_from > row.first_position ? sees_from : row.first_position;
        const float* query = queries.data + (i / group) * queries.stride + static_cast<int64_t>(head) * pages.head_dim;
        readers[i] = {query, sums + static_cast<int64_t>(i) * stride, LEAST, 0.0f, sees_from, row.position};
        first = sees_from < first ? sees_from : first;
        last = row.position > last ? row.position : last;
    }
    std::memset(sums, 0, sizeof(float) * reader_count * stride);
    const StepRow& whole = rows[row_count - 1];
    for (int64_t block = first / BLOCK_POSITIONS; block <= last / BLOCK_POSITIONS; block++) {
        for (int t = 0; t < BLOCK_TILES; t++) {
            const int64_t position = block * BLOCK_POSITIONS + t * TILE;
            float* own_keys = keys + t * TILE * pages.head_dim;
            float* own_values = values + t * TILE * stride;
            if (position > last || position + TILE <= whole.first_position) {
                std::memset(own_keys, 0, sizeof(float) * TILE * pages.head_dim);
                std::memset(own_values, 0, sizeof(float) * TILE * stride);
                continue;
            }
            const int64_t tile = whole.tiles[(position - whole.first_position) / TILE];
            const int64_t there = last - position + 1;
            load_tile(pages, tile, kv_head, there < TILE ? static_cast<int>(there) : TILE, stride, own_keys, own_values);
        }
        for (int i = 0, size = 0; i < reader_count; i += size) {
            const int left = reader_count - i;
            size = left >= READERS ? (left < 2 * READERS && left > READERS ? (left + 1) / 2 : READERS) : left;
            switch (size) {
#define READ(N)                                                                                                      \
    case N:                                                                                                          \
        if constexpr (N <= READERS) read_block<N>(readers + i, form, block, keys, values, pages.head_dim, stride);    \
        break;
                READ(1) READ(2) READ(3) READ(4) READ(5) READ(6) READ(7) READ(8) READ(9) READ(10) READ(11) READ(12)
#undef READ
            }
        }
    }
    for (int i = 0; i < reader_count; i++) {
        Reader& reader = readers[i];
        const int head = kv_head * group + i % group;
        float factor = 1.0f;
        if (form.sinks) {
            float sink = form.sinks[head], reference = sink > reader.most ? sink : reader.most;
            factor = exponential_of(reader.most - reference);
            reader.total = reader.total * factor + exponential_of(sink - reference);
        }
        float* place = out.data + (i / group) * out.stride + static_cast<int64_t>(head) * pages.value_dim;
        for (int e = 0; e < pages.value_dim; e++) place[e] = reader.sums[e] * factor / reader.total;
    }
}

}  // namespace
