// What every simd_<set>.h offers: Vec, a virtual vector of 16 fp32 lanes, in an unnamed namespace
// of the including file's own namespace (invar::cpu::portable, ::avx2, ::avx512). Kernels are
// written once over it, in *_inl.h files, and compiled once a set. All functions give the same bits
// on every set; NaNs may differ in sign and payload.
//
// A file compiled for one set must not use inline functions of the standard library or of our other
// headers: the linker keeps one copy of such a function, perhaps one with instructions that this
// CPU lacks. Hence plain pointers, and nothing from <algorithm>, <cmath> or tensor.h in there.
//
//   Vec zero(), splat(float)
//   Vec load(const float*), load_first(const float*, int n)      lanes >= n are 0
//   store(float*, Vec), store_first(float*, Vec, int n)
//   Vec load_f16(const uint16_t*), store_f16(uint16_t*, Vec)     round to nearest even
//   Vec add, sub, mul, div
//   Vec fma(a, b, c) = a * b + c, neg_fma(a, b, c) = c - a * b   one rounding
//   Vec max(a, b) = a > b ? a : b, abs, copy_sign(magnitude, sign)
//   Mask less(a, b), lanes(first, last)
//   Vec select(mask, a, b) = mask ? a : b
//   Vec round(x): to an integer, ties to even
//   Vec times_power(x, n) = x * 2^n, by adding to the exponent
//   float sum(Vec): the tree 8, 4, 2, 1; float largest(Vec)
//
// kNumAccumulators: how many Vecs an inner loop may keep in registers.
#pragma once

#include <cstdint>

#include "base/math.h"

#define INVAR_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define INVAR_UNROLL _Pragma("unroll")
#else
#define INVAR_UNROLL _Pragma("GCC unroll 16")
#endif
