// AVX2: several rows of one digit with cells in the cache, as products of bytes (byte_products.h).
#pragma once
#include "byte_products.h"
#include "cells.h"

namespace {

// As that for other rows in products.h.
template <int N, bool SIGNED, int PARTS, bool MINIMA>
NOT_INLINED void multiply_byte_cells(const CachedCell<PARTS, MINIMA, 8>* cells, int count, CellNumbers numbers,
                                     const RowBlock<1>* rows, float* sums, int64_t sums_stride) {
    constexpr int WORDS = 8 / PARTS;
    const int together = SIGNED ? 1 : words_together(false, numbers.most, WORDS);
    const I ones = _mm256_set1_epi16(1);
    for (int c = 0; c < count; c++, rows += N) {
        const CachedCell<PARTS, MINIMA, 8>& cell = cells[c];
UNROLL(2)
        for (int part = 0; part < PARTS; part++) {
            I whole[N][WIDTH];
UNROLL(16)
            for (int n = 0; n < N; n++) {
                const int32_t* halves = rows[n].sums[0];
                I start = splat(offset_taken(numbers.offset, halves[part], PARTS == 1 ? halves[1] : 0));
                for (int v = 0; v < WIDTH; v++) whole[n][v] = start;
            }
            for (int first = part * WORDS; first < (part + 1) * WORDS; first += together) {
                I products[N][WIDTH];
UNROLL(16)
                for (int n = 0; n < N; n++) {
                    for (int v = 0; v < WIDTH; v++) products[n][v] = splat(0);
                }
                for (int word = first; word < first + together; word++) {
                    I weights[WIDTH];
                    for (int v = 0; v < WIDTH; v++) weights[v] = load(cell.steps[word] + LANES * v);
UNROLL(16)
                    for (int n = 0; n < N; n++) {
                        const I digits = splat_word(rows[n].digits + 4 * word);
                        for (int v = 0; v < WIDTH; v++) {
                            products[n][v] = _mm256_add_epi16(products[n][v], products_of_bytes<SIGNED>(weights[v], digits));
                            in_order(products[n][v]);
                        }
                    }
                }
UNROLL(16)
                for (int n = 0; n < N; n++) {
                    for (int v = 0; v < WIDTH; v++) whole[n][v] = plus(whole[n][v], _mm256_madd_epi16(products[n][v], ones));
                }
            }
UNROLL(16)
            for (int n = 0; n < N; n++) {
                for (int v = 0; v < WIDTH; v++) {
                    add_part(cell, part, v, rows[n], to_floats(whole[n][v]), sums + n * sums_stride + LANES * v);
                }
            }
        }
    }
}

}  // namespace
