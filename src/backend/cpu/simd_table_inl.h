// The table of one set's kernels. Last include of simd_kernels_<set>.cc.

namespace invar::cpu::INVAR_SIMD_SET {

extern const SimdKernels kSimdKernels;
const SimdKernels kSimdKernels = {
    {silu_run, gelu_tanh_run, silu_mul_run, gelu_tanh_mul_run, softcap_run},
    {attend_group, fold_states, finish_state, store_kv},
    rms_norm_row,
    rope_head,
    {weighted_sum, add_scaled},
    {gated_delta_rows, delta_gates, ssd_rows, ssd_gates, unit_row, short_conv_run, gated_norm_group,
     sigmoid_gate_run, relu2_run},
};

}  // namespace invar::cpu::INVAR_SIMD_SET
