// `invar --version`.
#include "backend/backend.h"
#include "commands.h"
#include "exit_codes.h"
#include "invar/invar.h"
#include "terminal.h"

namespace invar::cli {

int print_version() {
  BackendOptions options;
  options.num_threads = 1;
  print(std::string("invar ") + version() + "\n");
  for (const std::string& name : backend_names()) {
    Result<std::unique_ptr<Backend>> backend = make_backend(name, options);
    if (!backend) {
      printf("%s: %s\n", name.c_str(), backend.error().message.c_str());
      continue;
    }
    const BackendInfo& info = (*backend)->info();
    printf("%s: arithmetic %s, instruction set %s%s%s\n", name.c_str(), info.arithmetic_id.c_str(),
           info.isa.c_str(), info.why.empty() ? "" : ": ", info.why.c_str());
  }
  return kExitOk;
}

}  // namespace invar::cli
