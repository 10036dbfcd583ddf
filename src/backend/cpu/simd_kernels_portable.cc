// The vector kernels for any CPU.
#include "backend/cpu/simd_kernels.h"

#define INVAR_SIMD_SET portable
// clang-format off: each of these needs the ones before it.
#include "backend/cpu/simd_portable.h"
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
