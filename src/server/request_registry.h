// RequestRegistry: the generating requests that run now, for those who list, cancel and count them.
// A route enters its request when its choices have started, and leaves by letting go of the entry:
//
//   const RequestRegistry::Entry entry(
//       options.requests, request_facts(http, id, generation), writer, choices);
//
// or before they start, when there is work before that (completions_route.cc). From then on the
// entry cancels the choices when the answer can no longer be delivered
// (ResponseWriter::on_closed is its business), and counts how each choice ended. What a request
// says and gets is no part of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "server/choices.h"
#include "server/generation_fields.h"
#include "server/http/http_types.h"

namespace invar::server {

// What is known of a request when it starts.
struct RequestFacts {
  std::string id;  // "chatcmpl-..."
  std::string request_id, endpoint, model;
  std::string key_digest;  // only this key's holder sees it
  int64_t created = 0;     // seconds since 1970
  Clock::time_point received = {};
  bool stream = false;
  int num_choices = 1;
  int64_t max_tokens = -1;
  int64_t num_prompt_tokens = 0;  // until its choices know
};

RequestFacts request_facts(const Request& http, const std::string& id,
                           const GenerationFields& generation);

// One request of the list.
struct ListedRequest {
  RequestFacts facts;
  RequestStatus status;
};

// One choice that runs, for those who count them.
struct RegisteredChoice {
  int64_t number = 0;  // of its request, in order of arrival
  int64_t num_tokens = 0;
};

// Counts since the start.
struct RequestCounters {
  Histogram num_choices{{1, 2, 5, 10, 20}};  // of requests
  // By what was going on when the client left.
  std::atomic<int64_t> left_queued = 0, left_prefill = 0, left_decode = 0;
  // By who cancelled.
  std::atomic<int64_t> cancelled_by_client = 0, cancelled_by_api = 0, cancelled_by_slow_reader = 0,
                       cancelled_by_drain = 0;
  // Choices by their ending.
  std::atomic<int64_t> ended_stop = 0, ended_length = 0, ended_tool_calls = 0, ended_abort = 0,
                       ended_error = 0;
};

class RequestRegistry {
 public:
  class Entry;

  // Newest first, of one key (or of nobody's, on a server without keys).
  std::vector<ListedRequest> list(const std::string& key_digest) const;
  // By id or X-Request-Id; of several with one X-Request-Id the newest.
  std::optional<ListedRequest> find(const std::string& key_digest, const std::string& id) const;

  // Ends the request with request_cancelled and waits until its pages are free, at most a step.
  // `status`: its state before, its tokens after. Nothing: there is no such request, it has ended,
  // or somebody else cancels it already.
  std::optional<ListedRequest> cancel(const std::string& key_digest, const std::string& id);

  // Of everybody's requests: neither queued nor preempted. Oldest first.
  std::vector<RegisteredChoice> running_choices() const;
  // Ends every request of which no choice has started; said to it by `error`.
  void drop_queued(const ApiError& error);

  const RequestCounters& counters() const { return counters_; }

 private:
  struct Running {
    RequestFacts facts;
    int64_t number = 0;
    std::shared_ptr<ResponseWriter> writer;
    std::atomic<bool> cancelled = false;  // by cancel(): nobody finds it any more
    std::atomic<bool> dropped = false;    // by drop_queued()
    std::stop_source stopped;             // its answer can no longer be delivered
    bool left = false;                    // the registry's mutex_ held

    std::shared_ptr<Choices> choices() const;  // nullptr: none has started
    void set_choices(std::shared_ptr<Choices> choices);
    void stop();
    RequestStatus status() const;
    ListedRequest listed() const;

   private:
    mutable std::mutex mutex_;
    std::shared_ptr<Choices> choices_;
  };

  std::shared_ptr<Running> running(const std::string& key_digest, const std::string& id) const;
  void count_close(const Running& request, CloseReason reason);

  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::list<std::shared_ptr<Running>> requests_;  // newest first
  int64_t num_entered_ = 0;
  RequestCounters counters_;
};

// Makes the request visible; leaves with it.
class RequestRegistry::Entry {
 public:
  // `registry` null: nobody lists or counts; the choices are cancelled all the same.
  Entry(RequestRegistry* registry, RequestFacts facts, std::shared_ptr<ResponseWriter> writer,
        std::shared_ptr<Choices> choices);
  // Of a request that works before its choices start: it ends that when `stop()` says so.
  Entry(RequestRegistry* registry, RequestFacts facts, std::shared_ptr<ResponseWriter> writer);
  void start(std::shared_ptr<Choices> choices);
  std::stop_token stop() const { return request_->stopped.get_token(); }
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  RequestRegistry* registry_;
  std::shared_ptr<Running> request_;
  std::list<std::shared_ptr<Running>>::iterator place_;
};

}  // namespace invar::server
