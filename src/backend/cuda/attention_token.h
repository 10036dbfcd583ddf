// One new token per sequence, few groups: the part of attention() in attention_token.cu.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/attention.h"

namespace invar::cuda {

// Stores k and v, writes y, or where p.split the partial results of every group.
void attention_token(cudaStream_t stream, const AttentionParams& p, bool dependent);

}  // namespace invar::cuda
