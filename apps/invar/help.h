// How --help looks: groups, defaults, wrapped lines, the example last.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace invar::cli {

std::string make_help(const CLI::App& app, const std::string& name);

std::vector<std::string> long_flags(const CLI::App& app);  // "--threads", ...

}  // namespace invar::cli
