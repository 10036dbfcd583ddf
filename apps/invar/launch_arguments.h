// The command line of a server as launchers write it: every name of a flag, --no-NAME, "--name
// value" and "--name=value", the last one wins; then variables (INVAR_PORT), then a file of
// settings (--config). All of it is checked here, before anything is opened but that file; what
// comes out is plain "--name=value" for the library that sets the targets.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "flags.h"

namespace invar::cli {

struct LaunchArguments {
  enum class Help { kNone, kText, kJson };
  Help help = Help::kNone;
  bool version = false;
  std::vector<std::string> words;             // without a dash
  std::map<std::string, std::string> values;  // by primary name; toggles: "true", "false"
  std::vector<std::string> warnings;

  std::vector<std::string> plain() const;  // "--name=value", words
};

// Reads the value of a variable; nullptr: not set.
using Environment = std::function<const char*(const std::string& name)>;

// Errors name flag, variable or line, and what would do. `out` then holds what was read so far.
Result<void> read_launch_arguments(const std::vector<FlagRecord>& flags,
                                   const std::vector<std::string>& arguments,
                                   const Environment& environment, LaunchArguments& out);

// The value of one flag by its primary name, whatever is wrong with the others: how a start that
// fails finds out where to say so. From arguments and variables only.
std::optional<std::string> find_value(const std::string& name,
                                      const std::vector<std::string>& arguments,
                                      const Environment& environment);

}  // namespace invar::cli
