// FlagSet: how a command says which flags it has. Values are checked while the command line is
// read, before any file is opened. A thin face of CLI11, whose headers only a few files include.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace invar::cli {

class FlagSet {
 public:
  explicit FlagSet(CLI::App& app) : app_(app) {}

  // A word without a dash. The command does not run without one unless it is optional.
  void argument(const std::string& name, std::string& target, const std::string& help,
                bool optional = false);

  // For the flags that follow, as launchers of servers expect it: the last one wins when one is
  // given twice, and the variable INVAR_NAME stands in for --name.
  void take_last_and_environment() { for_launchers_ = true; }

  // The heading in --help under which the flags that follow stand.
  void group(const std::string& heading) { group_ = heading; }

  // `value` is what stands for the value in help ("FILE"); `shown_default`: said in help.
  void text(const std::string& flag, const std::string& value, std::string& target,
            const std::string& help, const std::string& shown_default = "");
  void text(const std::string& flag, const std::string& value, std::optional<std::string>& target,
            const std::string& help);
  // May be repeated. `check` returns what is wrong with a value, or "".
  void texts(const std::string& flag, const std::string& value, std::vector<std::string>& target,
             const std::string& help,
             const std::function<std::string(const std::string&)>& check = {});
  // Help and completion show the words themselves: "cpu|reference".
  void choice(const std::string& flag, const std::vector<std::string>& words, std::string& target,
              const std::string& help, const std::string& shown_default = "");

  // Whole numbers and numbers in [low, high]; the error names both.
  struct Range {
    int64_t low, high;
  };
  void whole(const std::string& flag, const std::string& value, Range range, int64_t& target,
             const std::string& help, const std::string& shown_default = "");
  void whole(const std::string& flag, const std::string& value, Range range,
             std::optional<int64_t>& target, const std::string& help);
  // Numbers with commas between them; `target` holds the default.
  void wholes(const std::string& flag, const std::string& value, Range range,
              std::vector<int64_t>& target, const std::string& help,
              const std::string& shown_default = "");
  struct RealRange {
    double low, high;
    bool low_open = false;  // without `low` itself
  };
  void real(const std::string& flag, const std::string& value, RealRange range,
            std::optional<double>& target, const std::string& help);

  void toggle(const std::string& flag, bool& target, const std::string& help);

  // Below all flags in --help.
  void footer(const std::string& text);

  CLI::App& app() { return app_; }  // for completion, which walks all commands

 private:
  CLI::Option* settle(CLI::Option* option, bool repeats = false) const;

  CLI::App& app_;
  std::string group_ = "Flags";
  bool for_launchers_ = false;
};

// One subcommand. `add` declares its flags and returns what runs once they were read.
struct Command {
  const char* name;
  const char* summary;
  std::function<int()> (*add)(FlagSet& flags);
};

// Whole strings only, as flags take them: "12", "-3", "0.5".
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, double& value);

// The word of `known` that `word` was probably meant to be, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace invar::cli
