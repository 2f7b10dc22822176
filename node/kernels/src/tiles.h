// Tiles of pages. A tile has the keys of 16 positions of a key-value head, number by number, then their values, position by
// position: [head_dim][16], [16][value_dim]; in int8 the scales of each follow, in bfloat16, one for a group of numbers:
// [groups][16] of keys, [16][groups] of values. Values that are numbers of keys are not there.
#pragma once
#include "kernels.h"
#include "rows.h"

namespace {

using layerline::Pages;

constexpr int TILE = 16;
enum { KV_F32, KV_BF16, KV_INT8, KV_F16 };

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

    int bytes() const { return storage == KV_F32 ? 4 : storage == KV_INT8 ? 1 : 2; }
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
// The nearest number of 16 bits, of equals the even one; what is too large becomes the largest.
inline uint16_t to_float16(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, 4);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return 0x7e00;          // no number
    if (bits >= 0x477ff000) return sign | 0x7bff;  // 65520
    if (bits < 0x38800000) return sign | static_cast<uint16_t>(std::nearbyint(std::fabs(number) * 16777216.0f));
    return sign | static_cast<uint16_t>((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}
// Every such number is a float, whose exponent is moved to its place by a product; what is no number stays none.
inline float from_float16(uint16_t half) {
    if ((half & 0x7c00) == 0x7c00) return std::nanf("");
    uint32_t bits = static_cast<uint32_t>(half & 0x7fff) << 13;
    float number;
    std::memcpy(&number, &bits, 4);
    number *= 5.192296858534828e33f;  // 2^112
    return half & 0x8000 ? -number : number;
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
    if (half.storage == KV_F16) {
        for (int i = 0; i < half.numbers; i++) {
            uint16_t rounded = to_float16(numbers[i]);
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
    if (pages.value_from) return put_numbers(keys_of(pages, tile, head), key, place, TILE, place, TILE);
    Half values = values_of(pages, tile, head);
    put_numbers(keys_of(pages, tile, head), key, place, TILE, place, TILE);
    const int64_t groups = values.storage == KV_INT8 ? values.numbers / group_of(values.numbers) : 0;
    put_numbers(values, value, static_cast<int64_t>(place) * values.numbers, 1, place * groups, 1);
}

inline F signed_bytes(const uint8_t* p) { return to_floats(right_signed<24>(left<24>(bytes8(p)))); }

// LANES numbers that lie from the one at `index` on, without their scale.
template <int STORAGE> inline F held_numbers(const uint8_t* data, int64_t index) {
    if (STORAGE == KV_F32) return bits_of(load(data + 4 * index));
    if (STORAGE == KV_F16) return float16s(data + 2 * index);
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
    if (STORAGE == KV_F16) return from_float16(half_at(values.data, at));
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

// The first `positions` values of a tile that are numbers of its keys, as `load_values` gives them.
inline void take_values(const float* keys, int numbers, int positions, int stride, float* out) {
    std::memset(out, 0, sizeof(float) * TILE * stride);
    for (int position = 0; position < positions; position++, out += stride) {
        for (int i = 0; i < numbers; i++) out[i] = keys[i * TILE + position];
    }
}

// The keys of a head's tile and the first `positions` of its values, as floats.
inline void load_tile(const Pages& pages, int64_t tile, int head, int positions, int stride, float* own_keys, float* own_values) {
    const Half keys = keys_of(pages, tile, head), values = values_of(pages, tile, head);
    switch (keys.storage) {
#define HELD_AS(STORAGE)                                                                       \
    case STORAGE:                                                                              \
        load_keys<STORAGE>(keys, own_keys);                                                    \
        if (!pages.value_from) load_values<STORAGE>(values, positions, stride, own_values);    \
        break;
        HELD_AS(KV_F32) HELD_AS(KV_BF16) HELD_AS(KV_INT8) HELD_AS(KV_F16)
#undef HELD_AS
    }
    if (pages.value_from) take_values(own_keys + pages.value_from * TILE, pages.value_dim, positions, stride, own_values);
}

}  // namespace
