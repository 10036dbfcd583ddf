// `serve --backend scripted`, which test builds have (CMake's INVAR_SCRIPTED): an engine that says
// what a file says (docs/scripted-backend.md). In other builds nothing of it can be asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "flags.h"
#include "invar/invar.h"

namespace invar::cli {

inline constexpr const char* kScriptedBackend = "scripted";

// Words that --backend takes besides the usual ones.
std::vector<std::string> scripted_backend_words();
void add_script_flag(FlagSet& flags, std::string& script_file);

// The value of --script; an error when there is none, or a model beside it.
Result<std::string> script_path(const std::string& script_file, const std::string& model);
BackendInfo scripted_info();
Result<std::unique_ptr<Engine>> open_scripted(const std::string& script_file,
                                              const EngineOptions& options);

}  // namespace invar::cli
