// The table of one set's kernels. Last include of simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {

extern const SimdKernels kSimdKernels;
const SimdKernels kSimdKernels = {
    {silu_run, gelu_tanh_run, silu_mul_run, gelu_tanh_mul_run, softcap_run},
    {attend_group, fold_states, finish_state, store_kv},
    rms_norm_row,
    rope_head,
    {weighted_sum, add_scaled},
};

}  // namespace invar::cpu::INVAR_SIMD_SET
