// Recurrent states of one head: Gated DeltaNet and Mamba2. Included by simd_kernels_<set>.cc. The
// arithmetic, which nothing else may change; lane = value column j, keys i ascending:
//
//   softplus(x) = max(x, 0) + log1p(exp(-|x|)), log1p(t) = 2 atanh(t / (2 + t)) by a polynomial
//   Gated DeltaNet, a row:
//     alpha = exp(decay * softplus(a + dt_bias)),  beta = 1 / (1 + exp(-b))
//     k, q scaled: x * (c / sqrt(sum x^2 + 1e-6)), c = 1 for k and 1 / sqrt(key_dim) for q
//     r_j = chain over i of fma(k_i, S_ij, r_j), from +0
//     u_j = beta * (v_j - alpha * r_j)                 one fma, one product
//     S_ij = fma(k_i, u_j, alpha * S_ij)
//     o_j = chain over i of fma(q_i, S_ij, o_j), from +0
//   Mamba2, a row:
//     dt = softplus(dt + dt_bias), clamped where asked;  alpha = exp(dt * decay)
//     u_j = dt * x_j;  S_ij = fma(B_i, u_j, alpha * S_ij)
//     y_j = fma(skip, x_j, chain over i of fma(C_i, S_ij, chain))
//
// All of it is a function of the row's inputs and of S before it, in one order. A value column
// never meets another, so neither blocks of columns nor threads nor the cut into windows can
// matter.
//
// Speed: a block of two vectors of columns goes through all rows before the next block begins, so
// it stays in L1. The chain r of a row reads what the row before it has just computed, so both go
// over the block together: one pass a row and one more for the first. At one row the block comes
// from memory in the first pass and from L1 in the second, and both prefetch the block after it.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

// (atanh(s) / s - 1) / s^2 in s^2, for s <= 1/3: relative error 5e-9 of the logarithm.
constexpr float kAtanhPoly[4] = {0.140064225f, 0.140008137f, 0.200107694f, 0.333332092f};

INVAR_INLINE Vec softplus(Vec x) {
  const Vec t = exp(sub(zero(), abs(x)));
  const Vec s = div(t, add(splat(2.0f), t)), z = mul(s, s);
  Vec p = splat(kAtanhPoly[0]);
  INVAR_UNROLL for (int i = 1; i < 4; ++i) p = fma(p, z, splat(kAtanhPoly[i]));
  const Vec twice = add(s, s);
  return add(max(zero(), x), fma(mul(twice, z), p, twice));
}

INVAR_INLINE Vec sigmoid(Vec x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x)))); }

void delta_gates(const StateGates& g) {
  for (int64_t t = 0; t < g.num_rows; t += 16) {
    const int count = g.num_rows - t < 16 ? static_cast<int>(g.num_rows - t) : 16;
    const Vec step = softplus(add(load_first(g.step + t, count), splat(g.dt_bias)));
    store_first(g.keep + t, exp(mul(splat(g.decay), step)), count);
    store_first(g.gain + t, sigmoid(load_first(g.beta + t, count)), count);
  }
}

void ssd_gates(const StateGates& g) {
  for (int64_t t = 0; t < g.num_rows; t += 16) {
    const int count = g.num_rows - t < 16 ? static_cast<int>(g.num_rows - t) : 16;
    Vec step = softplus(add(load_first(g.step + t, count), splat(g.dt_bias)));
    if (g.dt_max > 0) {
      const Vec low = splat(g.dt_min), high = splat(g.dt_max);
      step = select(less(step, low), low, step);
      step = select(less(high, step), high, step);
    }
    store_first(g.keep + t, exp(mul(step, splat(g.decay))), count);
    store_first(g.gain + t, step, count);
  }
}

void unit_row(float* y, const float* x, int64_t count, float scale) {
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
  const Vec r = splat(scale / __builtin_sqrtf(sum(squares) + 1e-6f));
  for (int64_t i = 0; i < whole; i += 16) store(y + i, mul(load(x + i), r));
  if (rest > 0) store_first(y + whole, mul(load_first(x + whole, rest), r), rest);
}

// Vector c of a row of columns that has `count` in this block.
INVAR_INLINE Vec load_columns(const float* row, int c, int count) {
  return count >= c * 16 + 16 ? load(row + c * 16) : load_first(row + c * 16, count - c * 16);
}
INVAR_INLINE void store_columns(float* row, Vec x, int c, int count) {
  if (count >= c * 16 + 16) {
    store(row + c * 16, x);
  } else {
    store_first(row + c * 16, x, count - c * 16);
  }
}

// The same columns of the next row, which is nowhere near this one: asked for before the pass over
// the state, needed after it.
template <int kVecs>
INVAR_INLINE void prefetch_row(const StateRows& a, int64_t t, int64_t column) {
  if (t >= a.num_rows) return;
  INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
    __builtin_prefetch(a.value + t * a.value_stride + column + c * 16);
    __builtin_prefetch(a.out + t * a.out_stride + column + c * 16, 1);
  }
}

// r = S^T key.
template <int kVecs>
INVAR_INLINE void recall(Vec* r, const float* s, const float* key, int64_t key_dim,
                         const float* next) {
  INVAR_UNROLL for (int c = 0; c < kVecs; ++c) r[c] = zero();
  for (int64_t i = 0; i < key_dim; ++i) {
    const Vec k = splat(key[i]);
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      r[c] = fma(k, load(s + (i * kVecs + c) * 16), r[c]);
    }
    __builtin_prefetch(next + i * 16);
  }
}

// S = alpha S + key u^T, o = S^T query; with kAhead also r = S^T next_key.
template <int kVecs, bool kAhead>
INVAR_INLINE void advance(Vec* o, Vec* r, float* s, const Vec* u, float keep, const float* key,
                          const float* query, const float* next_key, int64_t key_dim,
                          const float* next) {
  const Vec alpha = splat(keep);
  INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
    o[c] = zero();
    if (kAhead) r[c] = zero();
  }
  for (int64_t i = 0; i < key_dim; ++i) {
    const Vec k = splat(key[i]), q = splat(query[i]);
    float* const row = s + i * kVecs * 16;
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      const Vec x = fma(k, u[c], mul(alpha, load(row + c * 16)));
      store(row + c * 16, x);
      o[c] = fma(q, x, o[c]);
      if (kAhead) r[c] = fma(splat(next_key[i]), x, r[c]);
    }
    if (!kAhead) __builtin_prefetch(next + i * 16);
  }
}

template <int kVecs>
void delta_block(const StateRows& a, float* s, int64_t column, const float* next) {
  const int64_t columns_left = a.value_dim - column;
  const int count = columns_left < kVecs * 16 ? static_cast<int>(columns_left) : kVecs * 16;
  Vec r[kVecs];
  recall<kVecs>(r, s, a.key, a.key_dim, next);
  for (int64_t t = 0; t < a.num_rows; ++t) {
    const float* value = a.value + t * a.value_stride + column;
    const Vec alpha = splat(a.keep[t]), beta = splat(a.gain[t]);
    Vec u[kVecs], o[kVecs];
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      u[c] = mul(beta, neg_fma(alpha, r[c], load_columns(value, c, count)));
    }
    const float* const key = a.key + t * a.key_stride;
    const float* const query = a.query + t * a.query_stride;
    prefetch_row<kVecs>(a, t + 1, column);
    if (t + 1 < a.num_rows) {
      advance<kVecs, true>(o, r, s, u, a.keep[t], key, query, key + a.key_stride, a.key_dim,
                           nullptr);
    } else {
      advance<kVecs, false>(o, r, s, u, a.keep[t], key, query, nullptr, a.key_dim,
                            next + a.key_dim * 16);
    }
    float* const out = a.out + t * a.out_stride + column;
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) store_columns(out, o[c], c, count);
  }
}

template <int kVecs>
void ssd_block(const StateRows& a, float* s, int64_t column, const float* next) {
  const int64_t columns_left = a.value_dim - column;
  const int count = columns_left < kVecs * 16 ? static_cast<int>(columns_left) : kVecs * 16;
  const Vec skip = splat(a.skip);
  for (int64_t t = 0; t < a.num_rows; ++t) {
    const float* value = a.value + t * a.value_stride + column;
    const Vec dt = splat(a.gain[t]);
    Vec x[kVecs], u[kVecs], o[kVecs];
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      x[c] = load_columns(value, c, count);
      u[c] = mul(dt, x[c]);
    }
    prefetch_row<kVecs>(a, t + 1, column);
    advance<kVecs, false>(o, nullptr, s, u, a.keep[t], a.key + t * a.key_stride,
                          a.query + t * a.query_stride, nullptr, a.key_dim, next);
    float* const out = a.out + t * a.out_stride + column;
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      store_columns(out, fma(skip, x[c], o[c]), c, count);
    }
  }
}

// Calls two(state, column, next) for every block of two vectors and one() for a last single one;
// next is the block behind it.
template <typename Two, typename One>
INVAR_INLINE void for_blocks(const StateRows& a, const Two& two, const One& one) {
  const int64_t columns = padded_columns(a.value_dim);
  // Prefetching is free to read anywhere, and without a next state the old one is in a cache.
  const float* const after = a.next != nullptr ? a.next : a.state;
  float* s = a.state;
  int64_t column = 0;
  for (; column + kStateBlock <= columns; column += kStateBlock) {
    float* const behind = s + a.key_dim * kStateBlock;
    two(s, column, column + kStateBlock < columns ? behind : after);
    s = behind;
  }
  if (column < columns) one(s, column, after);
}

void gated_delta_rows(const StateRows& a) {
  for_blocks(
      a, [&](float* s, int64_t c, const float* next) { delta_block<2>(a, s, c, next); },
      [&](float* s, int64_t c, const float* next) { delta_block<1>(a, s, c, next); });
}

void ssd_rows(const StateRows& a) {
  for_blocks(
      a, [&](float* s, int64_t c, const float* next) { ssd_block<2>(a, s, c, next); },
      [&](float* s, int64_t c, const float* next) { ssd_block<1>(a, s, c, next); });
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
