// The other command's side of a comparison.
#include "bench_against.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>

namespace invar::cli {
namespace {

Result<OtherResult> parse_one(const Json& json) {
  OtherResult result;
  INVAR_TRY(result.tokens_per_second, json.required<double>("tokens_per_second"));
  INVAR_TRY(const std::string work, json.required<std::string>("work"));
  if (work != "prefill" && work != "decode")
    return invalid_argument("'work' is '%s', expected prefill or decode", work.c_str());
  result.what.work = work == "prefill" ? BenchWork::kPrefill : BenchWork::kDecode;
  INVAR_TRY(result.what.tokens, json.required<int64_t>("tokens"));
  INVAR_TRY(result.what.depth, json.optional<int64_t>("depth", 0));
  INVAR_TRY(result.what.sequences, json.optional<int>("sequences", 1));
  return result;
}

Result<std::vector<OtherResult>> parse_items(const std::vector<Json>& items) {
  std::vector<OtherResult> results;
  for (const Json& item : items) {
    INVAR_TRY(const OtherResult result, parse_one(item));
    results.push_back(result);
  }
  return results;
}

}  // namespace

Result<std::vector<OtherResult>> parse_other(const std::string& text) {
  const Result<Json> whole = Json::parse(text);
  if (whole && whole->is_array()) return parse_items(whole->items());
  if (whole && whole->find("results") != nullptr && whole->find("results")->is_array())
    return parse_items(whole->find("results")->items());
  std::vector<Json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    INVAR_TRY(Json json, Json::parse(line));
    lines.push_back(std::move(json));
  }
  if (lines.empty()) return invalid_argument("nothing was printed");
  return parse_items(lines);
}

Result<std::vector<OtherResult>> run_other(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return io_error("cannot run '%s'", command.c_str());
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return unavailable("'%s' failed with %s %d", command.c_str(),
                       WIFEXITED(status) ? "exit code" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  auto results = parse_other(text);
  if (!results) return with_context("what '" + command + "' printed", results.error());
  return results;
}

std::vector<double> Comparison::ratios() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    ratios.push_back(ours[i] / theirs[i]);
  return ratios;
}

}  // namespace invar::cli
