// The backends this build has. A backend that is not built is left out by CMake.
#include "backend/backend.h"

namespace invar {

Result<std::unique_ptr<Backend>> make_reference_backend(const BackendOptions& options);
Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);
#ifdef INVAR_WITH_CUDA
Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);
#endif

namespace {

struct Entry {
  std::string_view name;
  MakeBackend make;
};
constexpr Entry kBackends[] = {
    {"cpu", make_cpu_backend},
    {"reference", make_reference_backend},
#ifdef INVAR_WITH_CUDA
    {"cuda", make_cuda_backend},
#endif
};

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(std::string_view name,
                                              const BackendOptions& options) {
  std::string known;
  for (const Entry& entry : kBackends) {
    if (entry.name == name && name != "cuda" && !options.switches.empty())
      return invalid_argument(
          "switches '%s' (--cuda-switches) are for the cuda backend, not for %s",
          options.switches.c_str(), entry.name.data());
    if (entry.name == name && name != "cpu" &&
        (!options.isa.empty() || options.activation_bits != 8))
      return invalid_argument(
          "the %s backend has one arithmetic: leave out cpu_isa and activation_bits",
          entry.name.data());
    if (entry.name == name) return entry.make(options);
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return invalid_argument("unknown backend '%.*s'; this build has: %s",
                          static_cast<int>(name.size()), name.data(), known.c_str());
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kBackends) names.emplace_back(entry.name);
  return names;
}

}  // namespace invar
