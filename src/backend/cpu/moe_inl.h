// Sums over a row's experts. Included by simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

// y = sum over j ascending of weights[j] * rows[j], one fma each from +0, then + residual (null:
// none; y may be it).
void weighted_sum(float* y, const float* const* rows, const float* weights, int num_rows,
                  const float* residual, int64_t count) {
  const int64_t whole = count / 16 * 16;
  const int rest = static_cast<int>(count - whole);
  for (int64_t i = 0; i < whole; i += 16) {
    Vec sum = zero();
    for (int j = 0; j < num_rows; ++j) sum = fma(splat(weights[j]), load(rows[j] + i), sum);
    if (residual != nullptr) sum = add(sum, load(residual + i));
    store(y + i, sum);
  }
  if (rest > 0) {
    Vec sum = zero();
    for (int j = 0; j < num_rows; ++j)
      sum = fma(splat(weights[j]), load_first(rows[j] + whole, rest), sum);
    if (residual != nullptr) sum = add(sum, load_first(residual + whole, rest));
    store_first(y + whole, sum, rest);
  }
}

// y += factor * x, one fma each
void add_scaled(float* y, const float* x, float factor, int64_t count) {
  const Vec f = splat(factor);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(y + i, fma(f, load(x + i), load(y + i)));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_first(y + i, fma(f, load_first(x + i, rest), load_first(y + i, rest)), rest);
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
