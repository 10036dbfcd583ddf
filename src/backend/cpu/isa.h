// Which instruction set the cpu backend's kernels use. All sets compute the same bits; the choice
// is one of speed. Kernels of a set stand in files named *_avx2.cc, *_neon.cc, *_portable.cc and so
// on, inside a namespace of that name, and are reached through tables of function pointers only. A
// build has the sets of its architecture.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar::cpu {

enum class Isa { kPortable, kAvx2, kAvxVnni, kAvx512, kNeon, kI8mm };

const char* isa_name(Isa isa);  // "portable", "avx2", "avxvnni", "avx512", "neon", "i8mm"

// Every set there is, on this machine or not; the better a set, the later it stands.
std::span<const Isa> all_isas();

// Whether this CPU and its operating system (saved register state) run the set.
// kAvx2 means AVX2, FMA and F16C; kAvxVnni those and AVX-VNNI (the byte dot in 256 bits, without
// AVX-512); kAvx512 the first three and AVX-512 F, BW, DQ, VL and VNNI.
// On AArch64: kNeon means DotProd, kI8mm that and I8MM.
bool isa_available(Isa isa);

struct IsaChoice {
  Isa isa = Isa::kPortable;
  std::string why;  // "best of portable avx2; no avx512f avx512bw ... on this CPU"
};

// "" takes the best there is. Errors: kInvalidArgument for an unknown name, kUnsupported for a set
// that this CPU lacks; the message says what is missing and which sets there are.
Result<IsaChoice> choose_isa(std::string_view name);

}  // namespace invar::cpu
