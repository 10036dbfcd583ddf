// scan.h with 256-bit vectors; scan.cc calls this where the CPU has them.
#if defined(__x86_64__)
#define INVAR_SCAN_SET scan_avx2
#include "sampling/scan_inl.h"
#endif
