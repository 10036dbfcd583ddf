#include "backend/cpu_linear_oracle.h"

#include <cmath>
#include <cstring>

namespace invar::test {
namespace {

using F = WeightFormat;

// A weight as integer numbers: s * w, or s * w + b.
struct Weight {
  int w;
  float s, b;
};

uint16_t u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
float half(const uint8_t* p) { return f16_to_f32(u16(p)); }

int nibble_32(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }
int bit_of(const uint8_t* p, int e) { return (p[e / 8] >> (e % 8)) & 1; }

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Scale and minimum of sub-block k of Q4_K and Q5_K.
void k_scales(const uint8_t* s, int k, int& sc, int& mn) {
  if (k < 4) {
    sc = s[k] & 63;
    mn = s[k + 4] & 63;
  } else {
    sc = (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
    mn = (s[k + 4] >> 4) | (s[k] >> 6) << 4;
  }
}

Weight block_weight(F format, const uint8_t* p, int e) {
  switch (format) {
    case F::kQ4_0:
      return {nibble_32(p + 2, e) - 8, half(p), 0};
    case F::kQ4_1:
      return {nibble_32(p + 4, e), half(p), half(p + 2)};
    case F::kQ5_0:
      return {(nibble_32(p + 6, e) | bit_of(p + 2, e) << 4) - 16, half(p), 0};
    case F::kQ5_1:
      return {nibble_32(p + 8, e) | bit_of(p + 4, e) << 4, half(p), half(p + 2)};
    case F::kQ8_0:
      return {static_cast<int8_t>(p[2 + e]), half(p), 0};
    case F::kIQ4_NL:
      return {kIq4[nibble_32(p + 2, e)], half(p), 0};
    case F::kMXFP4:
      return {kFp4Doubled[nibble_32(p + 1, e)], std::ldexp(1.f, p[0] - 128), 0};
    case F::kQ2_K: {
      const int n = e / 128, j = e % 128 / 32, h = e % 32 / 16, l = e % 16;
      const int s = p[8 * n + 2 * j + h];
      const float b = half(p + 82) * static_cast<float>(s >> 4);
      return {(p[16 + 32 * n + 16 * h + l] >> (2 * j)) & 3,
              half(p + 80) * static_cast<float>(s & 15), -b};
    }
    case F::kQ3_K: {
      const int n = e / 128, j = e % 128 / 32, h = e % 32 / 16, l = e % 16, k = 8 * n + 2 * j + h;
      const uint8_t* s = p + 96;
      const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
      const int high = (s[8 + k % 4] >> (2 * (k / 4))) & 3;
      const int q = (p[32 + 32 * n + 16 * h + l] >> (2 * j)) & 3;
      const bool set = ((p[16 * h + l] >> (4 * n + j)) & 1) != 0;
      return {q - (set ? 0 : 4), half(p + 108) * static_cast<float>((low | high << 4) - 32), 0};
    }
    case F::kQ4_K:
    case F::kQ5_K: {
      const int c = e / 64, h = e % 64 / 32, l = e % 32, k = 2 * c + h;
      int sc, mn;
      k_scales(p + 4, k, sc, mn);
      const uint8_t* qs = p + (format == F::kQ4_K ? 16 : 48);
      int q = h == 0 ? qs[32 * c + l] & 15 : qs[32 * c + l] >> 4;
      if (format == F::kQ5_K) q += ((p[16 + l] >> k) & 1) * 16;
      const float b = half(p + 2) * static_cast<float>(mn);
      return {q, half(p) * static_cast<float>(sc), -b};
    }
    case F::kQ6_K: {
      const int n = e / 128, t = e % 128 / 32, l = e % 32;
      const uint8_t ql = p[64 * n + 32 * (t % 2) + l];
      const int low = t < 2 ? ql & 15 : ql >> 4;
      const int high = (p[128 + 32 * n + l] >> (2 * t)) & 3;
      const int scale = static_cast<int8_t>(p[192 + 8 * n + 2 * t + l / 16]);
      return {(low | high << 4) - 32, half(p + 208) * static_cast<float>(scale), 0};
    }
    case F::kIQ4_XS: {
      const int k = e / 32;
      const int ls = ((p[4 + k / 2] >> (4 * (k % 2))) & 15) | ((u16(p + 2) >> (2 * k)) & 3) << 4;
      return {kIq4[nibble_32(p + 8 + 16 * k, e % 32)], half(p) * static_cast<float>(ls - 32), 0};
    }
    default:
      break;
  }
  INVAR_CHECK(false, "no block");
}

float scale_at(const uint8_t* p, int64_t i, DType dtype) {
  if (dtype == DType::kF16) return half(p + 2 * i);
  if (dtype == DType::kBF16) return bf16_to_f32(u16(p + 2 * i));
  float v;
  std::memcpy(&v, p + 4 * i, 4);
  return v;
}

Weight weight_at(const MatrixView& m, int64_t row, int64_t k) {
  const int64_t stored = m.stored_row(row);
  const uint8_t* data = m.data + stored * m.row_bytes;
  if (m.format != F::kMlxAffine) {
    const BlockShape shape = block_shape(m.format);
    return block_weight(m.format, data + k / shape.num_elements * shape.num_bytes,
                        static_cast<int>(k % shape.num_elements));
  }
  int q = 0;
  for (int i = 0; i < m.bits; ++i) {
    const int64_t at = k * m.bits + i;
    q |= ((data[at / 8] >> (at % 8)) & 1) << i;
  }
  const int64_t entry = stored * (m.num_cols / m.group_size) + k / m.group_size;
  return {q, scale_at(m.scales, entry, m.scale_dtype), scale_at(m.biases, entry, m.scale_dtype)};
}

bool is_affine(F f) {
  return f == F::kQ4_1 || f == F::kQ5_1 || f == F::kQ2_K || f == F::kQ4_K || f == F::kQ5_K ||
         f == F::kMlxAffine;
}
bool scales_every_16(F f) { return f == F::kQ2_K || f == F::kQ3_K || f == F::kQ6_K; }
bool is_float(F f) { return f == F::kF32 || f == F::kF16 || f == F::kBF16; }

// Offsets of a block's fp16 numbers.
std::vector<int> half_offsets(F format) {
  switch (format) {
    case F::kQ2_K:
      return {80, 82};
    case F::kQ3_K:
      return {108};
    case F::kQ6_K:
      return {208};
    case F::kQ4_1:
    case F::kQ5_1:
    case F::kQ4_K:
    case F::kQ5_K:
      return {0, 2};
    case F::kMXFP4:
      return {};
    default:
      return {0};
  }
}

void put_value(uint8_t* p, DType dtype, float v) {
  if (dtype == DType::kF32) {
    std::memcpy(p, &v, 4);
    return;
  }
  uint16_t bits = f32_to_f16(v);
  if (dtype == DType::kBF16) {
    uint32_t wide;
    std::memcpy(&wide, &v, 4);
    bits = static_cast<uint16_t>(wide >> 16);
  }
  std::memcpy(p, &bits, 2);
}

}  // namespace

int FormatSpec::block() const {
  return format == F::kMlxAffine ? group_size : block_shape(format).num_elements;
}

std::string FormatSpec::name() const {
  std::string name = format_name(format);
  if (format == F::kMlxAffine) {
    constexpr const char* kTypes[] = {"f32", "f16", "bf16"};
    name = "Mlx" + std::to_string(bits) + "g" + std::to_string(group_size) +
           kTypes[static_cast<int>(scale_dtype)];
  }
  return name;
}

std::vector<FormatSpec> all_formats() {
  std::vector<FormatSpec> specs;
  for (F f : {F::kF32, F::kF16, F::kBF16, F::kQ4_0, F::kQ4_1, F::kQ5_0, F::kQ5_1, F::kQ8_0,
              F::kQ2_K, F::kQ3_K, F::kQ4_K, F::kQ5_K, F::kQ6_K, F::kIQ4_NL, F::kIQ4_XS, F::kMXFP4})
    specs.push_back({f, 0, 0, DType::kF32});
  int i = 0;
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128}) {
      constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};
      specs.push_back({F::kMlxAffine, bits, group, kTypes[(i++ + bits) % 3]});
    }
  return specs;
}

OwnedMatrix random_matrix(const FormatSpec& spec, int64_t num_rows, int64_t num_cols,
                          std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  OwnedMatrix m;
  m.view.name = spec.name();
  m.view.format = spec.format;
  m.view.num_rows = num_rows;
  m.view.num_cols = num_cols;
  const bool mlx = spec.format == F::kMlxAffine;
  m.view.row_bytes =
      mlx ? num_cols * spec.bits / 8 : num_cols / spec.block() * block_shape(spec.format).num_bytes;
  // One byte in front: nothing in a checkpoint is aligned.
  m.data.resize(static_cast<size_t>(num_rows * m.view.row_bytes) + 1);
  for (uint8_t& b : m.data) b = static_cast<uint8_t>(random());
  uint8_t* data = m.data.data() + 1;
  m.view.data = data;
  const auto sign = [&] { return (random() & 1) != 0 ? 1.f : -1.f; };
  if (mlx) {
    m.view.bits = spec.bits;
    m.view.group_size = spec.group_size;
    m.view.scale_dtype = spec.scale_dtype;
    const size_t width = dtype_bytes(spec.scale_dtype);
    const auto entries = static_cast<size_t>(num_rows * num_cols / spec.group_size);
    m.scales.resize(entries * width + 1);
    m.biases.resize(entries * width + 1);
    for (size_t i = 0; i < entries; ++i) {
      const float s = uniform(random) * sign() * std::ldexp(0.05f, 4 - spec.bits);
      put_value(m.scales.data() + 1 + i * width, spec.scale_dtype, s);
      put_value(m.biases.data() + 1 + i * width, spec.scale_dtype,
                -s * std::ldexp(uniform(random), spec.bits - 1));
    }
    m.view.scales = m.scales.data() + 1;
    m.view.biases = m.biases.data() + 1;
    return m;
  }
  if (is_float(spec.format)) {
    const DType dtype = spec.format == F::kF32   ? DType::kF32
                        : spec.format == F::kF16 ? DType::kF16
                                                 : DType::kBF16;
    for (int64_t i = 0; i < num_rows * num_cols; ++i)
      put_value(data + i * block_shape(spec.format).num_bytes, dtype, normal(random));
    return m;
  }
  const int64_t num_blocks = num_rows * num_cols / spec.block();
  for (int64_t i = 0; i < num_blocks; ++i) {
    uint8_t* block = data + i * block_shape(spec.format).num_bytes;
    for (int at : half_offsets(spec.format))
      put_value(block + at, DType::kF16, 0.01f * uniform(random) * sign());
    if (spec.format == F::kMXFP4) block[0] = static_cast<uint8_t>(118 + random() % 10);
  }
  return m;
}

float linear_oracle(const MatrixView& matrix, int64_t row, const float* x, int activation_bits) {
  float acc = 0;
  if (is_float(matrix.format)) {
    std::vector<float> w(static_cast<size_t>(matrix.num_cols));
    dequantize_row(matrix, row, w.data());
    for (int64_t k = 0; k < matrix.num_cols; ++k)
      acc = std::fma(w[static_cast<size_t>(k)], x[k], acc);
    return acc;
  }
  const float limit = activation_bits == 8 ? 127.f : 2047.f;
  const int inputs = scales_every_16(matrix.format) ? 16 : 32;
  for (int64_t g = 0; g < matrix.num_cols; g += 32) {
    float amax = 0;
    for (int i = 0; i < 32; ++i) amax = std::fmax(amax, std::fabs(x[g + i]));
    if (amax == 0 || std::isinf(limit / amax)) amax = 0;
    const float a = amax / limit, inverse = amax > 0 ? limit / amax : 0.f;
    for (int64_t first = g; first < g + 32; first += inputs) {
      int64_t d = 0, z = 0;
      Weight weight{};
      for (int64_t k = first; k < first + inputs; ++k) {
        weight = weight_at(matrix, row, k);
        const auto q = static_cast<int64_t>(std::nearbyint(x[k] * inverse));
        d += weight.w * q;
        z += q;
      }
      const float sa = weight.s * a;
      acc = std::fma(static_cast<float>(d), sa, acc);
      if (is_affine(matrix.format)) {
        const float az = a * static_cast<float>(z);
        acc = std::fma(weight.b, az, acc);
      }
    }
  }
  return acc;
}

}  // namespace invar::test
