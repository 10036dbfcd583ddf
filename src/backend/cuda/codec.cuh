// From the bytes of an A16 block (packed.h) to the A fragments of its four tensor-core steps. The
// only place that knows how each kind is decoded; lin_decode, lin_prefill, embed and unpack share
// it.
//
// Codes become numbers by gradual underflow: a small integer v in the low byte of a bf16 pattern,
// or in byte 2 of a float pattern, is v * 2^-133 exactly (exponent fields 0 and 1 share one
// spacing), so no conversion is needed and one fma with a scale kept times 2^133 gives the weight.
// Subnormals run at full rate. Compile without -ftz=true.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/packed.h"

namespace invar::cuda {

// 2^133 2^-8, in two exact factors since 2^133 alone is not a float.
__device__ __forceinline__ float stored_scale(float scale) { return scale * 0x1p125f; }
__device__ __forceinline__ float stored_bias(float bias) { return bias * 0x1p-8f; }

__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// Scale and bias of rows g and g + 8, as fp32.
struct ScalePair {
  float scale0, bias0, scale1, bias1;
};

// Byte `i` of `bytes` as the float i * 2^-133.
template <int I>
__device__ __forceinline__ float byte_float(uint32_t bytes) {
  return __uint_as_float(__byte_perm(bytes, 0, 0x4044 | I << 8));
}

// Byte `i` of `bytes` as a float of that value; two cheap instructions where I2F is a slow one.
__device__ __forceinline__ float byte_value(uint32_t bytes, int i) {
  return __uint_as_float(__byte_perm(bytes, 0x4B000000u, 0x7650 | i)) - 8388608.f;
}
__device__ __forceinline__ float signed_byte_value(uint32_t bytes, int i) {
  return __uint_as_float(__byte_perm(bytes ^ 0x80808080u, 0x4B000000u, 0x7650 | i)) - 8388736.f;
}

// Four codes of row g (bytes: even column, even + 8, odd, odd + 8) and of row g + 8.
__device__ __forceinline__ void fragment_of_bytes(uint32_t row0, uint32_t row1, const ScalePair& s,
                                                  uint32_t (&a)[4]) {
  a[0] = bf16_pair(__fmaf_rn(byte_float<0>(row0), s.scale0, s.bias0),
                   __fmaf_rn(byte_float<2>(row0), s.scale0, s.bias0));
  a[1] = bf16_pair(__fmaf_rn(byte_float<0>(row1), s.scale1, s.bias1),
                   __fmaf_rn(byte_float<2>(row1), s.scale1, s.bias1));
  a[2] = bf16_pair(__fmaf_rn(byte_float<1>(row0), s.scale0, s.bias0),
                   __fmaf_rn(byte_float<3>(row0), s.scale0, s.bias0));
  a[3] = bf16_pair(__fmaf_rn(byte_float<1>(row1), s.scale1, s.bias1),
                   __fmaf_rn(byte_float<3>(row1), s.scale1, s.bias1));
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int j) {
  return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

// Codec<kind>::Raw is what a lane reads of a block, kept small so that it can be read ahead;
// Ready holds decoded scales; fragment() makes step j. Every index is a compile-time constant after
// unrolling.
template <PackedKind kKind>
struct Codec;

template <>
struct Codec<PackedKind::kBf16> {
  struct Raw {
    uint4 w[4];
  };
  using Ready = Raw;
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    Raw r;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      r.w[j] = *reinterpret_cast<const uint4*>(block + (j * 32 + lane) * 16);
    return r;
  }
  static __device__ __forceinline__ Ready ready(const Raw& r) { return r; }
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    a[0] = r.w[j].x;
    a[1] = r.w[j].y;
    a[2] = r.w[j].z;
    a[3] = r.w[j].w;
  }
};

template <>
struct Codec<PackedKind::kAffine4> {
  struct Raw {
    uint4 q;
    uint2 s;
  };
  struct Ready {
    uint4 q;
    uint32_t s0, b0, s1, b1;
  };
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    return {*reinterpret_cast<const uint4*>(block + lane * 16),
            *reinterpret_cast<const uint2*>(block + 512 + (lane >> 2) * 8)};
  }
  static __device__ __forceinline__ Ready ready(const Raw& r) {
    return {r.q, __byte_perm(r.s.x, 0, 0x1010), __byte_perm(r.s.x, 0, 0x3232),
            __byte_perm(r.s.y, 0, 0x1010), __byte_perm(r.s.y, 0, 0x3232)};
  }
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    const uint32_t w = word_of(r.q, j), v = w >> 8;
    a[0] = fma_bf16x2(w & 0x000F000Fu, r.s0, r.b0);
    a[1] = fma_bf16x2(w & 0x00F000F0u, r.s1, r.b1);
    a[2] = fma_bf16x2(v & 0x000F000Fu, r.s0, r.b0);
    a[3] = fma_bf16x2(v & 0x00F000F0u, r.s1, r.b1);
  }
};

// Nibbles 0 and 2 of each half word are row g, 1 and 3 row g + 8.
__device__ __forceinline__ void fragment_of_nibbles(uint32_t w, const ScalePair& s,
                                                    uint32_t (&a)[4]) {
  fragment_of_bytes(w & 0x0F0F0F0Fu, (w >> 4) & 0x0F0F0F0Fu, s, a);
}

template <>
struct Codec<PackedKind::kHalf4> {
  struct Raw {
    uint4 q, s;  // s: scale|bias of row g and row g + 8, first 32 columns, then the other 32
  };
  using Ready = Raw;
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    return {*reinterpret_cast<const uint4*>(block + lane * 16),
            *reinterpret_cast<const uint4*>(block + 512 + (lane >> 2) * 16)};
  }
  static __device__ __forceinline__ Ready ready(const Raw& r) { return r; }
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    const float2 x = half_pair(j < 2 ? r.s.x : r.s.z), y = half_pair(j < 2 ? r.s.y : r.s.w);
    const ScalePair s = {stored_scale(x.x), stored_bias(x.y), stored_scale(y.x), stored_bias(y.y)};
    fragment_of_nibbles(word_of(r.q, j), s, a);
  }
};

template <>
struct Codec<PackedKind::kQ4K> {
  struct Raw {
    uint4 q, s;  // s: d|dmin of row g, of row g + 8, then sc m sc m of row g, of row g + 8
  };
  struct Ready {
    uint4 q;
    ScalePair s[2];
  };
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    return {*reinterpret_cast<const uint4*>(block + lane * 16),
            *reinterpret_cast<const uint4*>(block + 512 + (lane >> 2) * 16)};
  }
  // d sc and dmin m are exact in fp32, so the order of the factors does not matter.
  static __device__ __forceinline__ Ready ready(const Raw& r) {
    const float2 x = half_pair(r.s.x), y = half_pair(r.s.y);
    const float d0 = stored_scale(x.x), d1 = stored_scale(y.x);
    const float m0 = -stored_bias(x.y), m1 = -stored_bias(y.y);
    Ready out;
    out.q = r.q;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      out.s[g] = {d0 * byte_value(r.s.z, 2 * g), m0 * byte_value(r.s.z, 2 * g + 1),
                  d1 * byte_value(r.s.w, 2 * g), m1 * byte_value(r.s.w, 2 * g + 1)};
    }
    return out;
  }
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    fragment_of_nibbles(word_of(r.q, j), r.s[j >> 1], a);
  }
};

template <>
struct Codec<PackedKind::kQ8> {
  struct Raw {
    uint4 q[2];
    uint2 s;
  };
  struct Ready {
    uint4 q[2];
    ScalePair s[2];
  };
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    return {{*reinterpret_cast<const uint4*>(block + lane * 32),
             *reinterpret_cast<const uint4*>(block + lane * 32 + 16)},
            *reinterpret_cast<const uint2*>(block + 1024 + (lane >> 2) * 8)};
  }
  // code = q + 128; fma(code, d, -128 d) is q d exactly.
  static __device__ __forceinline__ ScalePair pair(uint32_t d) {
    const float2 x = half_pair(d);
    return {stored_scale(x.x), -128.f * stored_bias(x.x), stored_scale(x.y),
            -128.f * stored_bias(x.y)};
  }
  static __device__ __forceinline__ Ready ready(const Raw& r) {
    return {{r.q[0], r.q[1]}, {pair(r.s.x), pair(r.s.y)}};
  }
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    const uint4& q = r.q[j >> 1];
    fragment_of_bytes(j & 1 ? q.z : q.x, j & 1 ? q.w : q.y, r.s[j >> 1], a);
  }
};

template <>
struct Codec<PackedKind::kQ6K> {
  struct Raw {
    uint4 q;
    uint2 high, scales;  // scales: four bytes of row g, then of row g + 8
    uint32_t d;
  };
  struct Ready {
    uint4 q;
    uint2 high, scales;
    float d0, d1;  // times 2^125
  };
  static __device__ __forceinline__ Raw load(const uint8_t* block, int lane) {
    const int g = lane >> 2;
    return {*reinterpret_cast<const uint4*>(block + lane * 16),
            *reinterpret_cast<const uint2*>(block + 512 + lane * 8),
            *reinterpret_cast<const uint2*>(block + 768 + g * 8),
            *reinterpret_cast<const uint32_t*>(block + 832 + g * 4)};
  }
  static __device__ __forceinline__ Ready ready(const Raw& r) {
    const float2 d = half_pair(r.d);
    return {r.q, r.high, r.scales, stored_scale(d.x), stored_scale(d.y)};
  }
  // code = q + 32; the bias takes the 32 back, exactly.
  static __device__ __forceinline__ void fragment(const Ready& r, int j, uint32_t (&a)[4]) {
    const uint32_t w = word_of(r.q, j), h = j >> 1 ? r.high.y : r.high.x;
    // Bits 2 f.. of each byte of h with f = (j & 1) + 2 * (row g + 8).
    const uint32_t h0 = j & 1 ? h << 2 : h << 4, h1 = j & 1 ? h >> 2 : h;
    const float s0 = r.d0 * signed_byte_value(r.scales.x, j);
    const float s1 = r.d1 * signed_byte_value(r.scales.y, j);
    // -32 * 2^-133 in two factors
    const ScalePair s = {s0, s0 * -0x1p-64f * 0x1p-64f, s1, s1 * -0x1p-64f * 0x1p-64f};
    fragment_of_bytes((w & 0x0F0F0F0Fu) | (h0 & 0x30303030u),
                      ((w >> 4) & 0x0F0F0F0Fu) | (h1 & 0x30303030u), s, a);
  }
};

}  // namespace invar::cuda
