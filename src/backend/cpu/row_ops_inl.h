// Activations and softcap over runs of floats (row_ops.h). Included by simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

INVAR_INLINE Vec silu(Vec x) { return div(x, add(splat(1.0f), exp(sub(zero(), x)))); }

INVAR_INLINE Vec gelu_tanh(Vec x) {
  const Vec cube = fma(mul(mul(x, x), splat(0.044715f)), x, x);
  const Vec t = tanh(mul(cube, splat(0.797884561f)));  // sqrt(2 / pi)
  return mul(mul(splat(0.5f), x), add(splat(1.0f), t));
}

INVAR_INLINE Vec softcap(Vec x, Vec cap) { return mul(cap, tanh(div(x, cap))); }

// y = f(x) and y = f(a, b), element by element; the last few in a vector padded with zeros.
template <typename F>
INVAR_INLINE void map(float* y, const float* x, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(y + i, f(load(x + i)));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_first(y + i, f(load_first(x + i, rest)), rest);
}
template <typename F>
INVAR_INLINE void map(float* y, const float* a, const float* b, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(y + i, f(load(a + i), load(b + i)));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_first(y + i, f(load_first(a + i, rest), load_first(b + i, rest)), rest);
}

void silu_run(float* y, const float* x, int64_t count) {
  map(y, x, count, [](Vec v) { return silu(v); });
}
void gelu_tanh_run(float* y, const float* x, int64_t count) {
  map(y, x, count, [](Vec v) { return gelu_tanh(v); });
}
void silu_mul_run(float* y, const float* gate, const float* up, int64_t count) {
  map(y, gate, up, count, [](Vec g, Vec u) { return mul(silu(g), u); });
}
void gelu_tanh_mul_run(float* y, const float* gate, const float* up, int64_t count) {
  map(y, gate, up, count, [](Vec g, Vec u) { return mul(gelu_tanh(g), u); });
}
void softcap_run(float* y, const float* x, int64_t count, float cap) {
  const Vec c = splat(cap);
  map(y, x, count, [&](Vec v) { return softcap(v, c); });
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
