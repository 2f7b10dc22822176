// The vectors of one instruction set, behind the same names for all of them.
//
// I is a vector of LANES 32-bit integers, F one of as many floats. Every kernel is written once in these operations and
// compiled for each instruction set, and each operation rounds in the same way everywhere, so that all of them give the
// same bits. (Where a comparison with a NaN matters, the second operand comes out: `greater(number, NaN)` is NaN.)
//
//   load, store, splat, splat_word     whole vectors; one number or the four bytes at a place in all lanes
//   both, either, left, right          bits; right_signed keeps the sign; left_by and right_by take a variable
//   to_floats, to_integers             values (nearest, of equals the even one); bits_of: the same bits
//   float16s, words16, bytes8          LANES numbers of 16 or 8 bits
//   looked_up                          every byte of `places`, below 16, replaced by that of a table
//
// Of a word, four bytes of four columns a lane, `to_steps` makes the vectors to be multiplied, `steps` of all 32 columns.
// `put_digits` makes of 32 fixed-point numbers of a row `planes` times `steps` words to match, and tells the sums of each
// plane's halves; `step` adds their products, and `combined` makes of the sums, one for each plane, a float. `in_order` keeps
// the compiler from making several sums before any is stored, for which there are no registers. A signed byte may have become
// unsigned by adding SIGNED_OFFSET. Up to `most_rows` rows at a time have room in registers.
#pragma once
#include <cstdint>
#include <cstring>

// A loop whose counter becomes a constant, so that arrays of vectors are registers.
#if defined(LAYERLINE_PLAIN) || !defined(__GNUC__)
#define UNROLL(times)
#else
#define UNROLL(times) _Pragma(LAYERLINE_TEXT(GCC unroll times))
#define LAYERLINE_TEXT(words) #words
#endif

// A function of its own, so that the compiler gives it all registers.
#if defined(__GNUC__)
#define NOT_INLINED __attribute__((noinline))
#else
#define NOT_INLINED __declspec(noinline)
#endif

#if defined(LAYERLINE_AVX512)
#include "vectors_avx512.h"
#elif defined(LAYERLINE_AVXVNNI)
#include "vectors_avxvnni.h"
#elif defined(LAYERLINE_AVX2)
#include "vectors_avx2.h"
#elif defined(LAYERLINE_NEON)
#include "vectors_neon.h"
#else
#include "vectors_plain.h"
#endif

namespace {

constexpr int PANEL_ROWS = 16;
constexpr int word_steps(int digits) { return steps(digits) / 8; }
constexpr int WIDTH = PANEL_ROWS / LANES;  // vectors that hold a number of each row of a panel

inline F bfloat16s(const uint8_t* p) { return bits_of(left<16>(words16(p))); }

}  // namespace
