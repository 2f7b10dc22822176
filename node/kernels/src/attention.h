// Attention over pages. A tile has the keys of 16 positions of a key-value head, number by number, then their values,
// position by position: [head_dim][16], [16][value_dim]; in int8 the scales of each follow, in bfloat16, one for a group of
// numbers: [groups][16] of keys, [16][groups] of values.
//
// A row goes through blocks of 64 positions, counted from position 0, with a running maximum (Milakov and Gimelshein, Online
// normalizer calculation for softmax, 2018). A block in which it sees nothing leaves its sums as they are to the bit, so
// that what a row reads depends neither on the rows beside it nor on how they came.
#pragma once
#include "kernels.h"
#include "rows.h"

namespace {

using layerline::AttentionForm;
using layerline::Pages;
using layerline::Rows;
using layerline::StepRow;

constexpr int TILE = 16, BLOCK_TILES = 4, BLOCK_POSITIONS = TILE * BLOCK_TILES;
constexpr float LEAST = -3e38f;  // finite, so that differences of it are numbers
enum { KV_F32, KV_BF16, KV_INT8 };

inline int group_of(int numbers) {  // of numbers that share a scale: 32, or the largest power of two that divides them
    int group = 32;
    while (numbers % group) group /= 2;
    return group;
}

// Either the keys or the values of a tile: `numbers` of each position.
struct Half {
    uint8_t* data;
    uint8_t* scales;
    int numbers, storage;

    int bytes() const { return storage == KV_F32 ? 4 : storage == KV_BF16 ? 2 : 1; }
    int64_t size() const {
        int64_t held = static_cast<int64_t>(TILE) * numbers * bytes();
        return storage == KV_INT8 ? held + 2 * TILE * (numbers / group_of(numbers)) : held;
    }
};

inline Half keys_of(const Pages& pages, int64_t tile, int head) {
    uint8_t* data = pages.tiles + (tile * pages.kv_heads + head) * pages.tile_bytes;
    return {data, data + TILE * pages.head_dim, pages.head_dim, pages.storage};
}
inline Half values_of(const Pages& pages, int64_t tile, int head) {
    Half keys = keys_of(pages, tile, head);
    uint8_t* data = keys.data + keys.size();
    return {data, data + TILE * pages.value_dim, pages.value_dim, pages.storage};
}

inline uint16_t to_bfloat16(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, 4);
    if (number != number) return 0x7fc0;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bfloat16(uint16_t half) {
    uint32_t bits = static_cast<uint32_t>(half) << 16;
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
}
inline uint16_t half_at(const uint8_t* p, int64_t index) {
    uint16_t half;
    std::memcpy(&half, p + 2 * index, 2);
    return half;
}

// Puts the numbers of one position; number i of it lies at i * `apart` + `first`, and scale g at g * `scale_apart` + that of `first`.
inline void put_numbers(const Half& half, const float* numbers, int64_t first, int64_t apart, int64_t first_scale,
                        int64_t scale_apart) {
    if (half.storage == KV_F32) {
        for (int i = 0; i < half.numbers; i++) std::memcpy(half.data + 4 * (first + i * apart), numbers + i, 4);
        return;
    }
    if (half.storage == KV_BF16) {
        for (int i = 0; i < half.numbers; i++) {
            uint16_t rounded = to_bfloat16(numbers[i]);
            std::memcpy(half.data + 2 * (first + i * apart), &rounded, 2);
        }
        return;
    }
    const int group = group_of(half.numbers);
    for (int g = 0; g < half.numbers / group; g++) {
        float largest = 0.0f;
        for (int i = 0; i < group; i++) {
            float size = std::fabs(numbers[g * group + i]);
            largest = !(size <= largest) ? size : largest;  // a NaN counts as the largest
        }
        uint16_t rounded = to_bfloat16(largest / 127.0f);
        std::memcpy(half.scales + 2 * (first_scale + g * scale_apart), &rounded, 2);
        float scale = from_bfloat16(rounded);
        scale = scale > 1e-30f ? scale : 1e-30f;
        for (int i = 0; i < group; i++) {
            float steps = std::nearbyint(numbers[g * group + i] / scale);
            steps = steps > 127.0f ? 127.0f : steps >= -127.0f ? steps : -127.0f;
            half.data[first + (g * group + i) * apart] = static_cast<uint8_t>(static_cast<int8_t>(steps));
        }
    }
}

inline void keep_row(const Pages& pages, int head, int64_t tile, int place, const float* key, const float* value) {
    Half values = values_of(pages, tile, head);
    put_numbers(keys_of(pages, tile, head), key, place, TILE, place, TILE);
    const int64_t groups = values.storage == KV_INT8 ? values.numbers / group_of(values.numbers) : 0;
    put_numbers(values, value, static_cast<int64_t>(place) * values.numbers, 1, place * groups, 1);
}

inline F signed_bytes(const uint8_t* p) { return to_floats(right_signed<24>(left<24>(bytes8(p)))); }

// LANES numbers that lie from the one at `index` on, without their scale.
template <int STORAGE> inline F held_numbers(const uint8_t* data, int64_t index) {
    if (STORAGE == KV_F32) return bits_of(load(data + 4 * index));
    return STORAGE == KV_BF16 ? bfloat16s(data + 2 * index) : signed_bytes(data + index);
}

// The keys of a tile as floats [head_dim][16].
template <int STORAGE> inline void load_keys(const Half& keys, float* out) {
    const int group = STORAGE == KV_INT8 ? group_of(keys.numbers) : keys.numbers;
    for (int first = 0; first < keys.numbers; first += group) {
        for (int v = 0; v < TILE; v += LANES) {
            const F scale = STORAGE == KV_INT8 ? bfloat16s(keys.scales + 2 * (first / group * TILE + v)) : splat_float(1.0f);
            for (int number = first; number < first + group; number++) {
                F own = held_numbers<STORAGE>(keys.data, number * TILE + v);
                store_floats(out + number * TILE + v, STORAGE == KV_INT8 ? mul(own, scale) : own);
            }
        }
    }
}

// One number of a value.
template <int STORAGE> inline float held_number(const Half& values, int64_t position, int index) {
    const int64_t at = position * values.numbers + index;
    if (STORAGE == KV_BF16) return from_bfloat16(half_at(values.data, at));
    if (STORAGE == KV_INT8) {
        const int group = group_of(values.numbers);
        const float scale = from_bfloat16(half_at(values.scales, position * (values.numbers / group) + index / group));
        return static_cast<float>(static_cast<int8_t>(values.data[at])) * scale;
    }
    float number;
    std::memcpy(&number, values.data + 4 * at, 4);
    return number;
}

// The first `positions` values of a tile as floats [16][stride]; what is beyond them, or beyond a value's numbers, is zero.
template <int STORAGE> inline void load_values(const Half& values, int positions, int stride, float* out) {
    const int group = STORAGE == KV_INT8 ? group_of(values.numbers) : values.numbers;
    if (positions < TILE || stride > values.numbers) std::memset(out, 0, sizeof(float) * TILE * stride);
    for (int64_t position = 0; position < positions; position++, out += stride) {
        if (group % LANES) {
            for (int i = 0; i < values.numbers; i++) out[i] = held_number<STORAGE>(values, position, i);
            continue;
        }
        for (int first = 0; first < values.numbers; first += group) {
            const uint8_t* scales = values.scales + 2 * (position * (values.numbers / group) + first / group);
            const F scale = splat_float(STORAGE == KV_INT8 ? from_bfloat16(half_at(scales, 0)) : 1.0f);
            for (int i = first; i < first + group; i += LANES) {
                F own = held_numbers<STORAGE>(values.data, position * values.numbers + i);
                store_floats(out + i, STORAGE == KV_INT8 ? mul(own, scale) : own);
            }
        }
    }
}

// A tile's keys and the first `positions` of its values, as floats.
inline void load_tile(const Half& keys, const Half& values, int positions, int stride, float* own_keys, float* own_values) {
    if (keys.storage == KV_F32) {
        load_keys<KV_F32>(keys, own_keys);
        load_values<KV_F32>(values, positions, stride, own_values);
    } else if (keys.storage == KV_BF16) {
        load_keys<KV_BF16>(keys, own_keys);
        load_values<KV_BF16>(values, positions, stride, own_values);
    } else {
        load_keys<KV_INT8>(keys, own_keys);
        load_values<KV_INT8>(values, positions, stride, own_values);
    }
}

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

// cap * tanh(score / cap), as 1 - 2 / (e^2x + 1).
inline F capped(F score, float cap) {
    const F one = splat_float(1.0f), two = splat_float(2.0f);
    F power = exponential(mul(two, div(score, splat_float(cap))));
    return mul(sub(one, div(two, add(power, one))), splat_float(cap));
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
            load_tile(keys_of(pages, tile, kv_head), values_of(pages, tile, kv_head), there < TILE ? static_cast<int>(there) : TILE,
                      stride, own_keys, own_values);
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
