// One new token per sequence, many groups: the part of attention() in attention_stream.cu.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/attention.h"

namespace invar::cuda {

// Stores k and v, writes the partial results of every group (p.split).
void attention_stream(cudaStream_t stream, const AttentionParams& p, bool dependent);

}  // namespace invar::cuda
