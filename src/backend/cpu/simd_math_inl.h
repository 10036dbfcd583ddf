// exp and tanh on 16 lanes: step for step base/math_inl.h, so every lane has the bits of exp_f32
// and tanh_f32. Included once by each simd_kernels_<set>.cc, after its simd_<set>.h.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

INVAR_INLINE Vec exp(Vec x) {
  const Vec n = round(mul(x, splat(math::kLog2E)));
  Vec r = neg_fma(n, splat(math::kLn2High), x);
  r = neg_fma(n, splat(math::kLn2Low), r);
  Vec p = splat(math::kExpPoly[0]);
  INVAR_UNROLL for (int i = 1; i < 8; ++i) p = fma(p, r, splat(math::kExpPoly[i]));
  Vec y = times_power(p, n);
  y = select(less(x, splat(math::kExpLow)), zero(), y);
  return select(less(splat(math::kExpHigh), x), splat(__builtin_inff()), y);
}

INVAR_INLINE Vec tanh(Vec x) {
  const Vec a = abs(x), t = mul(x, x);
  Vec p = splat(math::kTanhPoly[0]);
  INVAR_UNROLL for (int i = 1; i < 6; ++i) p = fma(p, t, splat(math::kTanhPoly[i]));
  const Vec near = fma(p, mul(t, x), x);
  const Vec one = splat(1.0f);
  const Vec far = sub(one, div(splat(2.0f), add(exp(add(a, a)), one)));
  return select(less(a, splat(math::kTanhSplit)), near, copy_sign(far, x));
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
