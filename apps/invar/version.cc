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
  std::string line = std::string("invar ") + version();
  for (const std::string& name : backend_names()) {
    const Result<std::unique_ptr<Backend>> backend = make_backend(name, options);
    line += "; " + name + ": ";
    if (!backend) {
      line += backend.error().message;
      continue;
    }
    const BackendInfo& info = (*backend)->info();
    line += "arithmetic " + info.arithmetic_id + ", instruction set " + info.isa;
  }
  print(line + "\n");
  return kExitOk;
}

}  // namespace invar::cli
