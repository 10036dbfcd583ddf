// Rows around the recurrent states: short convolution, gated norm, gates. Included by
// simd_kernels_<set>.cc behind recurrent_inl.h. The arithmetic:
//   short_conv  silu(chain over taps j ascending of fma(weight_j, x_j, chain), from bias or +0)
//   gated_norm  v = x * act(z) (kGateThenNorm) or x; sum of v^2 and r = 1 / sqrt(mean + eps) as in
//               rms_norm.h;  y = (v * r) * weight [* act(z)]
//   sigmoid     1 / (1 + exp(-x)), a factor; silu as in row_ops.h
// The last few columns of a run are a vector padded with zeros.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

// f(i, get, put) for i = 0, 16, ...: get(p) loads 16 values of p from i on, put(p, v) stores them.
template <typename F>
INVAR_INLINE void for_vectors(int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    f([&](const float* p) { return load(p + i); }, [&](float* p, Vec v) { store(p + i, v); });
  }
  const int rest = static_cast<int>(count - i);
  if (rest > 0) {
    f([&](const float* p) { return load_first(p + i, rest); },
      [&](float* p, Vec v) { store_first(p + i, v, rest); });
  }
}

void short_conv_run(float* y, const float* const* x, int num_taps, const float* weight,
                    int64_t weight_stride, const float* bias, int64_t count) {
  for_vectors(count, [&](const auto& get, const auto& put) {
    Vec v = bias != nullptr ? get(bias) : zero();
    for (int j = 0; j < num_taps; ++j) v = fma(get(weight + j * weight_stride), get(x[j]), v);
    put(y, silu(v));
  });
}

INVAR_INLINE Vec gate_of(Vec z, bool with_sigmoid) { return with_sigmoid ? sigmoid(z) : silu(z); }

void gated_norm_group(const GatedNormGroup& g) {
  Vec squares = zero();
  for_vectors(g.count, [&](const auto& get, const auto& put) {
    Vec v = get(g.x);
    if (g.gate_first) {
      v = mul(v, gate_of(get(g.z), g.sigmoid));
      put(g.y, v);
    }
    squares = fma(v, v, squares);
  });
  const float mean = sum(squares) / static_cast<float>(g.count);
  const Vec r = splat(1.0f / __builtin_sqrtf(mean + g.eps));
  const float* const from = g.gate_first ? g.y : g.x;
  for_vectors(g.count, [&](const auto& get, const auto& put) {
    Vec v = mul(mul(get(from), r), get(g.weight));
    if (!g.gate_first) v = mul(v, gate_of(get(g.z), g.sigmoid));
    put(g.y, v);
  });
}

void sigmoid_gate_run(float* x, const float* gate, int64_t count) {
  map(x, x, gate, count, [](Vec v, Vec g) { return mul(v, sigmoid(g)); });
}

void relu2_run(float* x, int64_t count) {
  map(x, x, count, [](Vec v) {
    const Vec positive = max(zero(), v);
    return mul(positive, positive);
  });
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
