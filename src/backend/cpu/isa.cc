// CPUID, read by hand: the compilers' __builtin_cpu_supports know different lists of features. On
// AArch64 the kernel tells what the CPU has.
#include "backend/cpu/isa.h"

#include <cstdint>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace invar::cpu {
namespace {

void append_word(std::string& words, const char* word) {
  if (!words.empty()) words += ' ';
  words += word;
}

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni,
                        Isa::kAvx512,   Isa::kNeon, Isa::kI8mm};

bool is_arm(Isa isa) { return isa == Isa::kNeon || isa == Isa::kI8mm; }

#if defined(__x86_64__)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (leaf > __get_cpuid_max(0, nullptr)) return r;
  __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

// XCR0: which register files the operating system saves at a task switch.
uint64_t saved_state() {
  if ((cpuid(1).ecx & (1u << 27)) == 0) return 0;  // no OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// What the set needs and this machine lacks, separated by spaces; empty when it runs.
std::string missing_features(Isa isa) {
  std::string missing;
  const auto need = [&](const char* name, bool there) {
    if (!there) append_word(missing, name);
  };
  if (isa == Isa::kPortable) return missing;
  if (is_arm(isa)) return "AArch64";
  const Registers leaf1 = cpuid(1), leaf7 = cpuid(7);
  const uint64_t saved = saved_state();
  need("avx2", leaf7.ebx & (1u << 5));
  need("fma", leaf1.ecx & (1u << 12));
  need("f16c", leaf1.ecx & (1u << 29));
  need("ymm-state", (saved & 0x6) == 0x6);
  if (isa == Isa::kAvx2) return missing;
  if (isa == Isa::kAvxVnni) {
#ifdef INVAR_NO_AVXVNNI
    return "avxvnni (left out of this build)";
#else
    // Subleaf 1 reads as zeros where leaf 7 has none.
    need("avx_vnni", cpuid(7, 1).eax & (1u << 4));
    return missing;
#endif
  }
#ifdef INVAR_NO_AVX512
  return "avx512 (left out of this build)";
#else
  need("avx512f", leaf7.ebx & (1u << 16));
  need("avx512dq", leaf7.ebx & (1u << 17));
  need("avx512bw", leaf7.ebx & (1u << 30));
  need("avx512vl", leaf7.ebx & (1u << 31));
  need("avx512_vnni", leaf7.ecx & (1u << 11));
  need("zmm-state", (saved & 0xe6) == 0xe6);
  return missing;
#endif
}

#elif defined(__aarch64__)

std::string missing_features(Isa isa) {
  if (isa == Isa::kPortable) return "";
  if (!is_arm(isa)) return "x86-64";
  // Bits of the Linux ABI, written out: not every libc's headers have both.
  constexpr unsigned long kHwcapDotProd = 1ul << 20, kHwcap2I8mm = 1ul << 13;
  std::string missing;
  if ((getauxval(AT_HWCAP) & kHwcapDotProd) == 0) append_word(missing, "dotprod");
  if (isa == Isa::kI8mm && (getauxval(AT_HWCAP2) & kHwcap2I8mm) == 0) append_word(missing, "i8mm");
  return missing;
}

#else

std::string missing_features(Isa isa) {
  return isa == Isa::kPortable ? "" : is_arm(isa) ? "AArch64" : "x86-64";
}

#endif

// Whether it says anything that this CPU lacks the set.
bool is_of_this_architecture(Isa isa) {
#if defined(__aarch64__)
  return is_arm(isa);
#else
  return !is_arm(isa);
#endif
}

std::string available_names() {
  std::string names;
  for (Isa isa : kAll)
    if (isa_available(isa)) append_word(names, isa_name(isa));
  return names;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kI8mm:
      return "i8mm";
  }
  return "?";
}

std::span<const Isa> all_isas() { return kAll; }

bool isa_available(Isa isa) { return missing_features(isa).empty(); }

Result<IsaChoice> choose_isa(std::string_view name) {
  if (name.empty()) {
    IsaChoice choice;
    std::string lacking;
    for (Isa isa : kAll) {
      const std::string missing = missing_features(isa);
      if (missing.empty()) {
        choice.isa = isa;
        lacking.clear();  // of interest for better sets only
      } else if (lacking.empty() && is_of_this_architecture(isa)) {
        lacking = "; no " + missing;
      }
    }
    choice.why = "best of " + available_names() + lacking;
    return choice;
  }
  for (Isa isa : kAll) {
    if (name != isa_name(isa)) continue;
    if (const std::string missing = missing_features(isa); !missing.empty())
      return unsupported(
          "instruction set '%s' was asked for, but this CPU or build lacks %s; it has: %s",
          isa_name(isa), missing.c_str(), available_names().c_str());
    return IsaChoice{isa, "asked for"};
  }
  std::string known;
  for (Isa isa : kAll) append_word(known, isa_name(isa));
  return invalid_argument("unknown instruction set '%.*s'; known: %s",
                          static_cast<int>(name.size()), name.data(), known.c_str());
}

}  // namespace invar::cpu
