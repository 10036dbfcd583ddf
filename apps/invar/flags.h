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

// What a flag does, as specs/api.md 16.2 calls it: A, W or R. The last two are llama-server's.
enum class FlagClass {
  kActs,     // does what it says
  kIgnored,  // is taken with one warning
  kRefused,  // ends the start, unless its value asks for nothing
};

// One flag. Help, completion, --help=json and the command line of a server are made from these.
struct FlagRecord {
  enum class Arity { kNone, kOptional, kOne };

  std::vector<std::string> names = {};   // "--parallel", "--max-num-seqs"; the first is primary
  std::vector<std::string> shorts = {};  // "-np"
  std::vector<std::string> negatives =
      {};  // "--no-mmap"; understood for every toggle, shown if here
  Arity arity = Arity::kOne;
  std::string type = {};   // "integer", "number", "string", "choice", "boolean"
  std::string value = {};  // in help: "N", "on|off"
  std::string shown_default = {};
  std::string group = {}, help = {};
  FlagClass flag_class = FlagClass::kActs;
  std::string without_effect = {};        // why; not "": said when it is given
  std::vector<std::string> neutral = {};  // values that ask for nothing: neither said nor refused
  bool has_target = true;
  std::function<std::string(const std::string&)> check = {};  // what is wrong with a value, or ""
};

class FlagSet {
 public:
  // `siblings`: of all commands, for completion; they outlive this one.
  explicit FlagSet(CLI::App& app, const std::vector<FlagSet>* siblings = nullptr)
      : app_(app), siblings_(siblings) {}

  // A word without a dash. The command does not run without one unless it is optional.
  void argument(const std::string& name, std::string& target, const std::string& help,
                bool optional = false);

  // For the flags that follow, as launchers of servers expect it (launch_arguments.h): other names
  // and short ones, --no-NAME, variables, a file of settings; the last one wins. Warnings about
  // what was given are in launch_warnings() when the command runs.
  void for_launchers() { for_launchers_ = true; }
  bool is_for_launchers() const { return for_launchers_; }
  const std::shared_ptr<std::vector<std::string>>& launch_warnings() const { return warnings_; }

  // The heading in --help under which the flags that follow stand.
  void group(const std::string& heading) { group_ = heading; }

  // `flag` has the names, the primary one first: "--port", "--parallel,-np,--max-num-seqs". `value`
  // is what stands for the value in help ("FILE"); `shown_default`: said in help.
  void text(const std::string& flag, const std::string& value, std::string& target,
            const std::string& help, const std::string& shown_default = "");
  void text(const std::string& flag, const std::string& value, std::optional<std::string>& target,
            const std::string& help);
  // `check` returns what is wrong with a value, or "".
  using Check = std::function<std::string(const std::string&)>;
  void checked(const std::string& flag, const std::string& value, std::string& target,
               const Check& check, const std::string& help, const std::string& shown_default = "");
  // May be repeated.
  void texts(const std::string& flag, const std::string& value, std::vector<std::string>& target,
             const std::string& help, const Check& check = {});
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

  // `target` holds the default; "--ui,--no-ui": help shows both forms.
  void toggle(const std::string& flag, bool& target, const std::string& help);
  void toggle(const std::string& flag, std::optional<bool>& target, const std::string& help);

  // A flag without a target: known from other servers, or of what is not built. For launchers only.
  void foreign(FlagRecord record);

  // Below all flags in --help.
  void footer(const std::string& text);

  // The first flag of a group that was given on the command line, "" for none.
  std::string first_given(const std::string& group) const;

  const std::vector<FlagRecord>& records() const { return records_; }
  const std::vector<FlagSet>* siblings() const { return siblings_; }
  CLI::App& app() const { return app_; }

 private:
  FlagRecord& record(const std::string& flag, FlagRecord::Arity arity, const std::string& type,
                     const std::string& value, const std::string& help,
                     const std::string& shown_default, const Check& check);
  std::string library_names() const;
  CLI::Option* settle(CLI::Option* option, const FlagRecord& record) const;

  CLI::App& app_;
  const std::vector<FlagSet>* siblings_;
  std::string group_ = "Flags";
  bool for_launchers_ = false;
  std::vector<FlagRecord> records_;
  std::shared_ptr<std::vector<std::string>> warnings_ =
      std::make_shared<std::vector<std::string>>();
};

// "--repack,--no-repack,-nr" into the three lists of names; what follows a --no-NAME is negative.
void set_names(const std::string& flag, FlagRecord& record);

// The variable that stands in for a flag: INVAR_API_KEY for --api-key.
std::string variable_of(const std::string& name);

// One subcommand. `add` declares its flags and returns what runs once they were read.
struct Command {
  const char* name;
  const char* summary;
  std::function<int()> (*add)(FlagSet& flags);
};

// What is wrong with a word that is none of `words`.
FlagSet::Check one_of(const std::vector<std::string>& words);

// Numbers are compared as such: "0.0" is "0".
bool is_one_of(const std::string& text, const std::vector<std::string>& words);

// Whole strings only, as flags take them: "12", "-3", "0.5".
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, double& value);

// "on", "true", "1", "yes", "enabled" and their opposites.
std::optional<bool> parse_switch(const std::string& text);

// The word of `known` that `word` was probably meant to be, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace invar::cli
