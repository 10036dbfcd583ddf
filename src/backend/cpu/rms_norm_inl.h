// One row of RMS norm (arithmetic: rms_norm.h). Included by simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

void rms_norm_row(float* y, const float* x, const float* weight, const float* residual,
                  int64_t count, float eps) {
  const int64_t whole = count / 16 * 16;
  const int rest = static_cast<int>(count - whole);
  Vec squares = zero();
  for (int64_t i = 0; i < whole; i += 16) {
    const Vec v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (rest > 0) {
    const Vec v = load_first(x + whole, rest);
    squares = fma(v, v, squares);
  }
  const float mean = sum(squares) / static_cast<float>(count);
  const Vec r = splat(1.0f / __builtin_sqrtf(mean + eps));

  for (int64_t i = 0; i < whole; i += 16) {
    Vec v = mul(mul(load(x + i), r), load(weight + i));
    if (residual != nullptr) v = add(v, load(residual + i));
    store(y + i, v);
  }
  if (rest > 0) {
    Vec v = mul(mul(load_first(x + whole, rest), r), load_first(weight + whole, rest));
    if (residual != nullptr) v = add(v, load_first(residual + whole, rest));
    store_first(y + whole, v, rest);
  }
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
