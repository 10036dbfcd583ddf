// The subcommands, one file each; main.cc lists them with their summaries.
#pragma once

#include "flags.h"

namespace invar::cli {

std::function<int()> add_run(FlagSet& flags);
std::function<int()> add_serve(FlagSet& flags);
std::function<int()> add_pull(FlagSet& flags);
std::function<int()> add_list(FlagSet& flags);
std::function<int()> add_cache(FlagSet& flags);
std::function<int()> add_info(FlagSet& flags);
std::function<int()> add_plan(FlagSet& flags);
std::function<int()> add_eval(FlagSet& flags);
std::function<int()> add_bench(FlagSet& flags);
std::function<int()> add_verify(FlagSet& flags);
std::function<int()> add_profile(FlagSet& flags);
std::function<int()> add_tokenize(FlagSet& flags);
std::function<int()> add_completion(FlagSet& flags);

// `invar --version`: version, instruction set, arithmetic id.
int print_version();

}  // namespace invar::cli
