// An engine over a script file: `invar serve --backend scripted`, in test builds.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "invar/invar.h"

namespace invar::scripted {

// Of the options counts what bounds context, memory, sequences and the prefix cache, and the chat
// template.
Result<std::unique_ptr<Engine>> open_scripted_engine(const std::string& script_file,
                                                     const EngineOptions& options);

}  // namespace invar::scripted
