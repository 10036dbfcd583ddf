// Which loop belongs to which instruction set.
#include "backend/cpu/dot_peak.h"

namespace invar::cpu {

#if defined(__x86_64__)
namespace avx2 {
int64_t run_dots(Dot dot, int64_t rounds);
}
#ifndef INVAR_NO_AVXVNNI
namespace avxvnni {
int64_t run_dots(Dot dot, int64_t rounds);
}
#endif
#ifndef INVAR_NO_AVX512
namespace avx512 {
int64_t run_dots(Dot dot, int64_t rounds);
}
#endif
#endif

int64_t run_dots(Isa isa, [[maybe_unused]] Dot dot, [[maybe_unused]] int64_t rounds) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return avx2::run_dots(dot, rounds);
#ifndef INVAR_NO_AVXVNNI
    case Isa::kAvxVnni:
      return avxvnni::run_dots(dot, rounds);
#endif
#ifndef INVAR_NO_AVX512
    case Isa::kAvx512:
      return avx512::run_dots(dot, rounds);
#endif
#endif
    default:
      return 0;
  }
}

}  // namespace invar::cpu
