#include "scripted.h"

#include "base/result.h"

#ifdef INVAR_WITH_SCRIPTED
#include "scripted/open_scripted.h"
#include "scripted/scripted_model.h"

namespace invar::cli {

std::vector<std::string> scripted_backend_words() { return {kScriptedBackend}; }

void add_script_flag(FlagSet& flags, std::string& script_file) {
  flags.text("--script", "FILE", script_file,
             "What --backend scripted says, in place of MODEL (test builds only).");
}

Result<std::string> script_path(const std::string& script_file, const std::string& model) {
  if (script_file.empty()) return invalid_argument("--backend scripted needs --script FILE");
  if (!model.empty())
    return invalid_argument("--backend scripted has no MODEL, and '%s' was given", model.c_str());
  return script_file;
}

BackendInfo scripted_info() { return scripted::scripted_backend_info(); }

Result<std::unique_ptr<Engine>> open_scripted(const std::string& script_file,
                                              const EngineOptions& options) {
  return scripted::open_scripted_engine(script_file, options);
}

}  // namespace invar::cli

#else

namespace invar::cli {

std::vector<std::string> scripted_backend_words() { return {}; }
void add_script_flag(FlagSet&, std::string&) {}
Result<std::string> script_path(const std::string&, const std::string&) {
  return unsupported("this build has no scripted backend");
}
BackendInfo scripted_info() { return {}; }
Result<std::unique_ptr<Engine>> open_scripted(const std::string&, const EngineOptions&) {
  return unsupported("this build has no scripted backend");
}

}  // namespace invar::cli

#endif
