#include "verify_rounds.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

namespace invar::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// At most 16 values from a little before `position`, with the position in the middle marked.
template <typename T>
std::string around(const std::vector<T>& values, size_t position, const char* fmt) {
  const size_t begin = position < 8 ? 0 : position - 8;
  std::string text = begin > 0 ? "..." : "";
  for (size_t i = begin; i < std::min(values.size(), position + 8); ++i) {
    if (!text.empty()) text += ' ';
    text += (i == position ? "[" : "") + format(fmt, values[i]) + (i == position ? "]" : "");
  }
  if (position >= values.size()) text += text.empty() ? "[end]" : " [end]";
  if (position + 8 < values.size()) text += " ...";
  return text;
}

template <typename T>
size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

std::string shown(const std::string& text) {
  return json_quote(text.size() > 120 ? text.substr(0, 120) + "..." : text);
}

std::optional<Difference> compare_choice(const ChoiceOutcome& expected,
                                         const ChoiceOutcome& found) {
  const bool is_beginning = found.token_sha.empty();
  Difference difference;
  const auto values = [&](const char* what, const auto& a, const auto& b, const char* fmt) {
    const size_t at = first_difference(a, b);
    const bool is_end = at == a.size() || at == b.size();
    const bool differs = !is_end || (is_beginning ? b.size() > a.size() : a.size() != b.size());
    if (!differs) return false;
    difference.what = what;
    difference.position = static_cast<int64_t>(at);
    difference.expected = around(a, at, fmt);
    difference.found = around(b, at, fmt);
    return true;
  };
  // A server that says no ids has its hashes compared.
  const bool has_ids = !expected.ids.empty() && !found.ids.empty();
  if (has_ids && values("tokens", expected.ids, found.ids, "%d")) return difference;
  if (!is_beginning && expected.token_sha != found.token_sha) {
    difference.what = "tokens";
    difference.expected = "token_sha " + expected.token_sha;
    difference.found = "token_sha " + found.token_sha;
    return difference;
  }
  if (values("log-probability", expected.logprobs, found.logprobs, "%.9g")) return difference;
  if (is_beginning ? !expected.text.starts_with(found.text) : expected.text != found.text) {
    difference.what = "text";
    difference.expected = shown(expected.text);
    difference.found = shown(found.text);
    return difference;
  }
  if (!is_beginning && expected.finish_reason != found.finish_reason) {
    difference.what = "finish_reason";
    difference.expected = expected.finish_reason;
    difference.found = found.finish_reason;
    return difference;
  }
  return std::nullopt;
}

// Who runs beside whom.
class Company {
 public:
  explicit Company(size_t num_jobs) : beside_(num_jobs) {}
  void begin(int job) {
    const std::lock_guard lock(mutex_);
    for (const int other : running_) {
      beside_[static_cast<size_t>(job)].push_back(other);
      beside_[static_cast<size_t>(other)].push_back(job);
    }
    running_.push_back(job);
    most_ = std::max(most_, static_cast<int>(running_.size()));
  }
  void end(int job) {
    const std::lock_guard lock(mutex_);
    std::erase(running_, job);
  }
  std::vector<int> of(int job) {
    const std::lock_guard lock(mutex_);
    return beside_[static_cast<size_t>(job)];
  }
  int most() const { return most_; }

 private:
  std::mutex mutex_;
  std::vector<int> running_;
  std::vector<std::vector<int>> beside_;
  int most_ = 0;
};

struct Job {
  int request = 0;
  AskOptions ask;
  double pause = 0;  // seconds before it
};

bool use(VerifyRound::Use use, VerifyRandom& random) {
  return use == VerifyRound::Use::kOn || (use == VerifyRound::Use::kMixed && random.chance(50));
}

std::vector<Job> make_jobs(const std::vector<VerifyRequest>& requests, const VerifyRound& round,
                           double mean_seconds, VerifyRandom& random) {
  std::vector<Job> jobs;
  const auto add = [&](int request, int cut_after) {
    Job job;
    job.request = request;
    job.ask.use_cache = use(round.cache, random);
    job.ask.stream = use(round.stream, random);
    job.ask.cut_after = cut_after;
    if (random.chance(30))
      job.pause = mean_seconds * static_cast<double>(random.below(1000)) / 1000;
    jobs.push_back(job);
  };
  // Which ones of a part: other ones with every seed.
  const int64_t first = random.below(round.part);
  for (int64_t i = first; i < static_cast<int64_t>(requests.size()); i += round.part) {
    add(static_cast<int>(i), -1);
    if (round.cuts && random.chance(17))
      add(static_cast<int>(i), random.chance(30) ? 0 : static_cast<int>(random.between(1, 12)));
  }
  for (size_t i = jobs.size(); i > 1; --i)
    std::swap(jobs[i - 1], jobs[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  return jobs;
}

std::string job_name(const Job& job) {
  std::string name = std::to_string(job.request);
  if (job.ask.cut_after >= 0) name += format(" (left after %d events)", job.ask.cut_after);
  return name;
}

}  // namespace

const char* use_name(VerifyRound::Use use) {
  switch (use) {
    case VerifyRound::Use::kOff:
      return "off";
    case VerifyRound::Use::kOn:
      return "on";
    case VerifyRound::Use::kMixed:
      return "mixed";
  }
  return "unknown";
}

std::optional<Difference> compare(const VerifyRequest& request, const Outcome& expected,
                                  const Outcome& found) {
  for (size_t i = 0; i < expected.choices.size(); ++i) {
    if (auto difference = compare_choice(expected.choices[i], found.choices[i])) {
      difference->request = request.index;
      difference->choice = static_cast<int>(i);
      return difference;
    }
  }
  if (!found.was_cut && found.seed != expected.seed) {
    Difference difference;
    difference.request = request.index;
    difference.what = "seed";
    difference.expected = std::to_string(expected.seed);
    difference.found = std::to_string(found.seed);
    return difference;
  }
  return std::nullopt;
}

Result<std::vector<Outcome>> ask_alone(VerifyTarget& target, std::vector<VerifyRequest>& requests,
                                       const OnReply& on_reply) {
  std::vector<Outcome> outcomes;
  for (VerifyRequest& request : requests) {
    Result<Outcome> outcome = target.ask(request, {});
    if (!outcome)
      return with_context(format("request %d (%s)", request.index, request.describe().c_str()),
                          outcome.error());
    if (!request.has_seed) {
      request.sampling.seed = outcome->seed;
      request.has_seed = true;
    }
    outcomes.push_back(*std::move(outcome));
    on_reply(static_cast<int>(outcomes.size()), static_cast<int>(requests.size()));
  }
  return outcomes;
}

RoundResult run_round(VerifyTarget& target, const std::vector<VerifyRequest>& requests,
                      const std::vector<Outcome>& expected, const VerifyRound& round, uint64_t seed,
                      double mean_seconds, const OnReply& on_reply) {
  VerifyRandom random(seed);
  const std::vector<Job> jobs = make_jobs(requests, round, mean_seconds, random);
  Company company(jobs.size());
  RoundResult result;
  std::mutex mutex;
  std::atomic<int> next = 0, done = 0;
  std::atomic<bool> stop = false;
  const Clock::time_point begin = Clock::now();

  const auto take = [&](int index, const Job& job, Result<Outcome> outcome) {
    const VerifyRequest& request = requests[static_cast<size_t>(job.request)];
    const Outcome& alone = expected[static_cast<size_t>(job.request)];
    std::optional<Difference> difference;
    if (outcome) {
      difference = compare(request, alone, *outcome);
    } else {
      difference.emplace();
      difference->request = request.index;
      difference->what = "error";
      difference->expected = "a reply";
      difference->found = outcome.error().message;
    }
    const std::lock_guard lock(mutex);
    if (difference) {
      if (result.difference) return;
      difference->use_cache = job.ask.use_cache;
      difference->stream = job.ask.stream;
      for (const int other : company.of(index))
        difference->company.push_back(job_name(jobs[static_cast<size_t>(other)]));
      result.difference = std::move(difference);
      stop = true;
      return;
    }
    ++(job.ask.cut_after >= 0 ? result.num_cut : result.num_requests);
    result.num_cached_tokens += outcome->num_cached_tokens;
    for (size_t i = 0; i < outcome->choices.size(); ++i) {
      const ChoiceOutcome& choice = outcome->choices[i];
      result.num_choices += !choice.token_sha.empty();
      result.num_tokens += static_cast<int64_t>(choice.ids.size());
      result.num_logprobs += static_cast<int64_t>(choice.logprobs.size());
    }
  };

  const auto work = [&] {
    for (int index; !stop && (index = next++) < static_cast<int>(jobs.size());) {
      const Job& job = jobs[static_cast<size_t>(index)];
      if (job.pause > 0) std::this_thread::sleep_for(std::chrono::duration<double>(job.pause));
      company.begin(index);
      Result<Outcome> outcome = target.ask(requests[static_cast<size_t>(job.request)], job.ask);
      company.end(index);
      take(index, job, std::move(outcome));
      on_reply(++done, static_cast<int>(jobs.size()));
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < round.in_flight; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  result.seconds = seconds_since(begin);
  result.most_in_flight = company.most();

  if (result.difference) {
    Difference& difference = *result.difference;
    AskOptions ask;
    ask.use_cache = difference.use_cache;
    ask.stream = difference.stream;
    const VerifyRequest& request = requests[static_cast<size_t>(difference.request)];
    const Result<Outcome> again = target.ask(request, ask);
    if (!again)
      difference.again = "not answered: " + again.error().message;
    else if (compare(request, expected[static_cast<size_t>(difference.request)], *again))
      difference.again = "differs too: the settings make the difference, not the company";
    else
      difference.again = "equal: the company (or the moment) makes the difference";
  }
  return result;
}

}  // namespace invar::cli
