// The vector kernels compiled for avx2.
#if defined(__x86_64__)
#include "backend/cpu/simd_kernels.h"

#define INVAR_SIMD_SET avx2
// clang-format off: each of these needs the ones before it.
#include "backend/cpu/simd_avx2.h"
#include "backend/cpu/simd_math_inl.h"
#include "backend/cpu/row_ops_inl.h"
#include "backend/cpu/rms_norm_inl.h"
#include "backend/cpu/rope_inl.h"
#include "backend/cpu/attention_inl.h"
#include "backend/cpu/moe_inl.h"
#include "backend/cpu/recurrent_inl.h"
#include "backend/cpu/recurrent_rows_inl.h"
#include "backend/cpu/simd_table_inl.h"
// clang-format on
#endif
