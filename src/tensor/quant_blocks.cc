// GGUF blocks to fp32, written as the formulas of specs/weights.md section 3.3 stand: one function
// a format, in fp32 throughout. The plain version that kernels are compared with; speed is theirs.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/quant.h"

namespace invar {
namespace {

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load_u32(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

// Formats of 32 elements keep elements 0..15 in the low nibbles of 16 bytes, 16..31 in the high
// ones.
int nibble(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }

constexpr int kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
constexpr float kFp4Values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

void q4_0(const uint8_t* b, float* y) {
  const float d = load_f16(b);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(nibble(b + 2, e) - 8);
}

void q4_1(const uint8_t* b, float* y) {
  const float d = load_f16(b), m = load_f16(b + 2);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(nibble(b + 4, e)) + m;
}

void q5_0(const uint8_t* b, float* y) {
  const float d = load_f16(b);
  const uint32_t high = load_u32(b + 2);
  for (int e = 0; e < 32; ++e) {
    const int q = nibble(b + 6, e) | static_cast<int>((high >> e) & 1) << 4;
    y[e] = d * static_cast<float>(q - 16);
  }
}

void q5_1(const uint8_t* b, float* y) {
  const float d = load_f16(b), m = load_f16(b + 2);
  const uint32_t high = load_u32(b + 4);
  for (int e = 0; e < 32; ++e) {
    const int q = nibble(b + 8, e) | static_cast<int>((high >> e) & 1) << 4;
    y[e] = d * static_cast<float>(q) + m;
  }
}

void q8_0(const uint8_t* b, float* y) {
  const float d = load_f16(b);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(static_cast<int8_t>(b[2 + e]));
}

void q2_k(const uint8_t* b, float* y) {
  const uint8_t *scales = b, *qs = b + 16;
  const float d = load_f16(b + 80), dmin = load_f16(b + 82);
  for (int k = 0; k < 16; ++k) {  // k = 8n + 2j + h
    const int n = k / 8, j = k % 8 / 2, h = k % 2;
    const float scale = d * static_cast<float>(scales[k] & 15);
    const float min = dmin * static_cast<float>(scales[k] >> 4);
    for (int l = 0; l < 16; ++l) {
      const int q = (qs[32 * n + 16 * h + l] >> (2 * j)) & 3;
      y[16 * k + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void q3_k(const uint8_t* b, float* y) {
  const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
  const float d = load_f16(b + 108);
  for (int k = 0; k < 16; ++k) {
    const int n = k / 8, j = k % 8 / 2, h = k % 2;
    const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    const int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int l = 0; l < 16; ++l) {
      const int bit = (hmask[16 * h + l] >> (4 * n + j)) & 1;
      const int q = ((qs[32 * n + 16 * h + l] >> (2 * j)) & 3) - (bit != 0 ? 0 : 4);
      y[16 * k + l] = scale * static_cast<float>(q);
    }
  }
}

// Scale and minimum of sub-block k, six bits each, as Q4_K and Q5_K pack eight pairs into 12 bytes.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* s, int k) {
  if (k < 4) return {s[k] & 63, s[k + 4] & 63};
  return {(s[k + 4] & 15) | (s[k - 4] >> 6) << 4, (s[k + 4] >> 4) | (s[k] >> 6) << 4};
}

void q4_k(const uint8_t* b, float* y) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  const uint8_t* qs = b + 16;
  for (int k = 0; k < 8; ++k) {  // k = 2c + h
    const ScaleMin sm = scale_min(b + 4, k);
    const float scale = d * static_cast<float>(sm.scale), min = dmin * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[32 * (k / 2) + l] >> (4 * (k % 2))) & 15;
      y[32 * k + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void q5_k(const uint8_t* b, float* y) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  const uint8_t *qh = b + 16, *qs = b + 48;
  for (int k = 0; k < 8; ++k) {
    const ScaleMin sm = scale_min(b + 4, k);
    const float scale = d * static_cast<float>(sm.scale), min = dmin * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) {
      const int q = ((qs[32 * (k / 2) + l] >> (4 * (k % 2))) & 15) | ((qh[l] >> k) & 1) << 4;
      y[32 * k + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void q6_k(const uint8_t* b, float* y) {
  const uint8_t *ql = b, *qh = b + 128, *scales = b + 192;
  const float d = load_f16(b + 208);
  for (int e = 0; e < 256; ++e) {  // e = 128n + 32t + l
    const int n = e / 128, t = e % 128 / 32, l = e % 32;
    const int low = (ql[64 * n + 32 * (t % 2) + l] >> (t < 2 ? 0 : 4)) & 15;
    const int high = (qh[32 * n + l] >> (2 * t)) & 3;
    const int scale = static_cast<int8_t>(scales[8 * n + 2 * t + l / 16]);
    y[e] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

void iq4_nl(const uint8_t* b, float* y) {
  const float d = load_f16(b);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(kIQ4Values[nibble(b + 2, e)]);
}

void iq4_xs(const uint8_t* b, float* y) {
  const float d = load_f16(b);
  const int high = load_u16(b + 2);
  const uint8_t *low = b + 4, *qs = b + 8;
  for (int k = 0; k < 8; ++k) {
    const int ls = ((low[k / 2] >> (4 * (k % 2))) & 15) | ((high >> (2 * k)) & 3) << 4;
    const float scale = d * static_cast<float>(ls - 32);
    for (int e = 0; e < 32; ++e) {
      y[32 * k + e] = scale * static_cast<float>(kIQ4Values[nibble(qs + 16 * k, e)]);
    }
  }
}

// 2^(bits - 127); 0 means the subnormal 2^-127, 255 is the format's NaN.
float load_e8m0(uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
}

void mxfp4(const uint8_t* b, float* y) {
  const float scale = load_e8m0(b[0]);
  for (int e = 0; e < 32; ++e) y[e] = scale * kFp4Values[nibble(b + 1, e)];
}

void each_block(WeightFormat format, const uint8_t* blocks, int64_t count, float* out,
                void (*dequantize)(const uint8_t*, float*)) {
  const BlockShape shape = block_shape(format);
  INVAR_CHECK(count >= 0 && count % shape.num_elements == 0, "%ld elements in blocks of %d (%s)",
              long{count}, shape.num_elements, format_name(format));
  for (int64_t done = 0; done < count; done += shape.num_elements) {
    dequantize(blocks, out + done);
    blocks += shape.num_bytes;
  }
}

}  // namespace

void dequantize_blocks(WeightFormat format, const uint8_t* blocks, int64_t count, float* out) {
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(out, blocks, static_cast<size_t>(count) * 4);
      return;
    case WeightFormat::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = load_f16(blocks + 2 * i);
      return;
    case WeightFormat::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load_u16(blocks + 2 * i));
      return;
    case WeightFormat::kQ4_0:
      return each_block(format, blocks, count, out, q4_0);
    case WeightFormat::kQ4_1:
      return each_block(format, blocks, count, out, q4_1);
    case WeightFormat::kQ5_0:
      return each_block(format, blocks, count, out, q5_0);
    case WeightFormat::kQ5_1:
      return each_block(format, blocks, count, out, q5_1);
    case WeightFormat::kQ8_0:
      return each_block(format, blocks, count, out, q8_0);
    case WeightFormat::kQ2_K:
      return each_block(format, blocks, count, out, q2_k);
    case WeightFormat::kQ3_K:
      return each_block(format, blocks, count, out, q3_k);
    case WeightFormat::kQ4_K:
      return each_block(format, blocks, count, out, q4_k);
    case WeightFormat::kQ5_K:
      return each_block(format, blocks, count, out, q5_k);
    case WeightFormat::kQ6_K:
      return each_block(format, blocks, count, out, q6_k);
    case WeightFormat::kIQ4_NL:
      return each_block(format, blocks, count, out, iq4_nl);
    case WeightFormat::kIQ4_XS:
      return each_block(format, blocks, count, out, iq4_xs);
    case WeightFormat::kMXFP4:
      return each_block(format, blocks, count, out, mxfp4);
    case WeightFormat::kMlxAffine:
      break;
  }
  INVAR_CHECK(false, "%s has no blocks", format_name(format));
}

}  // namespace invar
