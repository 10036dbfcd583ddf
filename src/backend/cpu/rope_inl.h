// One head of rope (arithmetic: rope.h). Included by simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

void rope_head(float* x, const float* cos, const float* sin, int64_t num_pairs) {
  float* upper = x + num_pairs;
  int64_t i = 0;
  for (; i + 16 <= num_pairs; i += 16) {
    const Vec x0 = load(x + i), x1 = load(upper + i), c = load(cos + i), s = load(sin + i);
    store(x + i, fma(x0, c, sub(zero(), mul(x1, s))));
    store(upper + i, fma(x1, c, mul(x0, s)));
  }
  const int rest = static_cast<int>(num_pairs - i);
  if (rest == 0) return;
  const Vec x0 = load_first(x + i, rest), x1 = load_first(upper + i, rest);
  const Vec c = load_first(cos + i, rest), s = load_first(sin + i, rest);
  store_first(x + i, fma(x0, c, sub(zero(), mul(x1, s))), rest);
  store_first(upper + i, fma(x1, c, mul(x0, s)), rest);
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
