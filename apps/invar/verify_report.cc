#include "verify_report.h"

#include <algorithm>

#include "terminal.h"

namespace invar::cli {
namespace {

constexpr size_t kMaxCompany = 40;

long long number(int64_t value) { return static_cast<long long>(value); }

// Of all replies that were compared.
struct Sums {
  int64_t requests = 0, choices = 0, cut = 0, tokens = 0, logprobs = 0;
};

Sums sums_of(const VerifyReport& report) {
  Sums sums;
  for (const VerifyRow& row : report.rows) {
    sums.requests += row.result.num_requests;
    sums.choices += row.result.num_choices;
    sums.cut += row.result.num_cut;
    sums.tokens += row.result.num_tokens;
    sums.logprobs += row.result.num_logprobs;
  }
  return sums;
}

// The reference's own figures in the form of a round's.
RoundResult alone_result(const VerifyReport& report) {
  RoundResult result;
  result.seconds = report.alone_seconds;
  result.most_in_flight = 1;
  for (const Outcome& outcome : report.alone) {
    ++result.num_requests;
    result.num_choices += static_cast<int64_t>(outcome.choices.size());
    result.num_cached_tokens += outcome.num_cached_tokens;
    for (const ChoiceOutcome& choice : outcome.choices) {
      result.num_tokens += static_cast<int64_t>(choice.ids.size());
      result.num_logprobs += static_cast<int64_t>(choice.logprobs.size());
    }
  }
  return result;
}

std::string table_line(const std::optional<EngineSetting>& setting, const VerifyRound& round,
                       const RoundResult& result, int64_t num_preemptions, const char* verdict) {
  std::string line;
  if (setting) {
    line += format("%7d %6d %6d ", setting->num_threads, setting->chunk, setting->max_sequences);
  } else {
    line += format("%7s ", use_name(round.stream));
  }
  line += format("%9d %6s %8d %8lld %5d %8lld %8lld ", result.most_in_flight, use_name(round.cache),
                 result.num_requests, number(result.num_choices), result.num_cut,
                 number(result.num_tokens), number(result.num_cached_tokens));
  if (setting) line += format("%9lld ", number(std::max<int64_t>(0, num_preemptions)));
  return line + format("%7.1f  %s\n", result.seconds, verdict);
}

std::string mix_text(const VerifyReport& report) {
  const RequestMix mix = mix_of(report.requests);
  int64_t shortest = INT64_MAX, longest = 0, tokens = 0;
  for (const Outcome& outcome : report.alone) {
    shortest = std::min(shortest, outcome.num_prompt_tokens);
    longest = std::max(longest, outcome.num_prompt_tokens);
    for (const ChoiceOutcome& choice : outcome.choices)
      tokens = std::max(tokens, static_cast<int64_t>(choice.ids.size()));
  }
  std::string text = format(
      "%zu requests of seed %llu: %d greedy, %d sampled; %d chat, %d raw text; %d with penalties, "
      "%d logit_bias,\n%d stop strings, %d a schema, %d several choices, %d log-probabilities",
      report.requests.size(), static_cast<unsigned long long>(report.seed), mix.greedy, mix.sampled,
      mix.chat, mix.raw, mix.penalties, mix.biases, mix.stops, mix.schemas, mix.several,
      mix.logprobs);
  if (longest > 0)
    text += format(";\nprompts of %lld to %lld tokens", number(shortest), number(longest));
  if (tokens > 0) text += format(", replies of up to %lld", number(tokens));
  return text + "\n";
}

std::string company_text(const std::vector<std::string>& company) {
  if (company.empty()) return "nobody";
  std::string text;
  for (size_t i = 0; i < std::min(company.size(), kMaxCompany); ++i)
    text += (i > 0 ? ", " : "") + company[i];
  if (company.size() > kMaxCompany) text += format(" and %zu more", company.size() - kMaxCompany);
  return text;
}

std::string difference_text(const VerifyReport& report, const Difference& d) {
  const VerifyRequest& request = report.requests[static_cast<size_t>(d.request)];
  std::string text =
      format("\nDIFFERENT: request %d, choice %d, %s", d.request, d.choice, d.what.c_str());
  if (d.position >= 0) text += format(" at position %lld", number(d.position));
  text += format(" (cache %s, %s)\n", d.use_cache ? "on" : "off", d.stream ? "streamed" : "whole");
  text += "  request   " + request.describe() + "\n";
  text += "  alone     " + for_stdout(d.expected) + "\n";
  text += "  now       " + for_stdout(d.found) + "\n";
  text += "  beside    " + company_text(d.company) + "\n";
  text += "  alone again, the same way: " + for_stdout(d.again) + "\n";
  return text + "  body      " + request.body().dump() + "\n";
}

Json setting_json(const EngineSetting& setting) {
  Json json = Json::object();
  json.set("threads", setting.num_threads);
  json.set("prefill_chunk", setting.chunk);
  json.set("max_sequences", setting.max_sequences);
  return json;
}

Json result_json(const RoundResult& result) {
  Json json = Json::object();
  json.set("requests", result.num_requests);
  json.set("choices", result.num_choices);
  json.set("cancelled", result.num_cut);
  json.set("most_in_flight", result.most_in_flight);
  json.set("tokens", result.num_tokens);
  json.set("logprobs", result.num_logprobs);
  json.set("cached_tokens", result.num_cached_tokens);
  json.set("seconds", result.seconds);
  return json;
}

Json difference_json(const VerifyReport& report, const Difference& d) {
  Json json = Json::object();
  json.set("request", d.request);
  json.set("choice", d.choice);
  json.set("what", d.what);
  json.set("position", d.position < 0 ? Json() : Json(d.position));
  json.set("expected", d.expected);
  json.set("found", d.found);
  json.set("cache", d.use_cache);
  json.set("stream", d.stream);
  Json company = Json::array();
  for (const std::string& other : d.company) company.push_back(other);
  json.set("beside", std::move(company));
  json.set("alone_again", d.again);
  json.set("body", report.requests[static_cast<size_t>(d.request)].body());
  return json;
}

}  // namespace

std::string verify_table(const VerifyReport& report) {
  std::string out = for_stdout(report.target + ": " + report.about + ", arithmetic " +
                               report.arithmetic_id + ", model " + report.model_sha) +
                    "\n";
  out += mix_text(report);
  if (!report.tuning_path.empty())
    out += "rounds are tuned by " + for_stdout(report.tuning_path) + "\n";
  for (const std::string& line : report.left_out) out += "left out: " + for_stdout(line) + "\n";
  out += "\n";
  out += report.reference ? format("%7s %6s %6s ", "threads", "chunk", "slots")
                          : format("%7s ", "stream");
  out += format("%9s %6s %8s %8s %5s %8s %8s ", "in flight", "cache", "requests", "replies", "left",
                "tokens", "cached");
  if (report.reference) out += format("%9s ", "preempted");
  out += format("%7s\n", "seconds");
  VerifyRound alone;
  alone.cache = VerifyRound::Use::kOff;
  out += table_line(report.reference, alone, alone_result(report), 0, "alone");
  for (const VerifyRow& row : report.rows)
    out += table_line(row.setting, row.round, row.result, row.num_preemptions,
                      row.result.difference ? "DIFFERENT" : "equal");
  if (const Difference* difference = report.difference())
    return out + difference_text(report, *difference);
  const Sums sums = sums_of(report);
  return out + format(
                   "\nequal: %lld replies to %lld requests and %lld beginnings of cancelled "
                   "ones, %lld tokens, %lld log-probabilities\n",
                   number(sums.choices), number(sums.requests), number(sums.cut),
                   number(sums.tokens), number(sums.logprobs));
}

Json verify_json(const VerifyReport& report) {
  const RequestMix mix = mix_of(report.requests);
  Json counts = Json::object();
  counts.set("greedy", mix.greedy);
  counts.set("sampled", mix.sampled);
  counts.set("chat", mix.chat);
  counts.set("raw", mix.raw);
  counts.set("penalties", mix.penalties);
  counts.set("logit_bias", mix.biases);
  counts.set("stop", mix.stops);
  counts.set("schema", mix.schemas);
  counts.set("several_choices", mix.several);
  counts.set("logprobs", mix.logprobs);
  Json left_out = Json::array();
  for (const std::string& line : report.left_out) left_out.push_back(line);
  Json alone = result_json(alone_result(report));
  if (report.reference) alone.set("engine", setting_json(*report.reference));
  Json rounds = Json::array();
  for (const VerifyRow& row : report.rows) {
    Json json = result_json(row.result);
    if (row.setting) {
      json.set("engine", setting_json(*row.setting));
      json.set("preemptions", row.num_preemptions);
    } else {
      json.set("stream", use_name(row.round.stream));
    }
    json.set("in_flight", row.round.in_flight);
    json.set("cache", use_name(row.round.cache));
    json.set("equal", !row.result.difference);
    rounds.push_back(std::move(json));
  }
  const Difference* difference = report.difference();
  Json json = Json::object();
  json.set("target", report.target);
  json.set("about", report.about);
  json.set("arithmetic_id", report.arithmetic_id);
  json.set("model_sha", report.model_sha);
  json.set("seed", static_cast<int64_t>(report.seed));
  json.set("requests", static_cast<int64_t>(report.requests.size()));
  json.set("tuning_file", report.tuning_path.empty() ? Json() : Json(report.tuning_path));
  json.set("mix", std::move(counts));
  json.set("left_out", std::move(left_out));
  json.set("alone", std::move(alone));
  json.set("rounds", std::move(rounds));
  json.set("equal", difference == nullptr);
  json.set("difference", difference == nullptr ? Json() : difference_json(report, *difference));
  return json;
}

}  // namespace invar::cli
