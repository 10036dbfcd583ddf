// The plain build of scan.h, and the choice between it and scan_avx2.cc.
#include "sampling/scan.h"

#define INVAR_SCAN_SET scan_plain
#include "sampling/scan_inl.h"

namespace invar {

const ScanFunctions& scan() {
#if defined(__x86_64__)
  // Includes whether the operating system saves the registers.
  static const ScanFunctions& chosen =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? scan_avx2::kFunctions
                                                                      : scan_plain::kFunctions;
  return chosen;
#else
  return scan_plain::kFunctions;
#endif
}

}  // namespace invar
