// How --help looks: groups, defaults, wrapped lines, the example last. And the same facts as JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "flags.h"

namespace invar::cli {

// `flags` of the command; nullptr for the root.
std::string make_help(const CLI::App& app, const FlagSet* flags, const std::string& name);

// [{"name","aliases","arity","type","default","env","class"}]
std::string flags_json(const FlagSet& flags);

std::vector<std::string> long_flags(const FlagSet& flags);  // "--threads", ...

}  // namespace invar::cli
