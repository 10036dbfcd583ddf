#include "server/request_registry.h"

#include <ctime>

#include "server/http/error_body.h"

namespace invar::server {

RequestFacts request_facts(const Request& http, const std::string& id,
                           const GenerationFields& generation) {
  RequestFacts facts;
  facts.id = id;
  facts.request_id = http.request_id;
  facts.endpoint = http.path;
  facts.model = generation.model;
  facts.key_digest = http.key_digest;
  facts.created = static_cast<int64_t>(std::time(nullptr));
  facts.received = http.received;
  facts.stream = generation.stream;
  facts.num_choices = generation.num_choices;
  facts.max_tokens = generation.request.max_tokens;
  return facts;
}

std::shared_ptr<Choices> RequestRegistry::Running::choices() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

void RequestRegistry::Running::set_choices(std::shared_ptr<Choices> choices) {
  {
    const std::lock_guard lock(mutex_);
    choices_ = choices;
  }
  if (stopped.stop_requested()) choices->cancel();
}

void RequestRegistry::Running::stop() {
  stopped.request_stop();
  if (const std::shared_ptr<Choices> running = choices()) running->cancel();
}

RequestStatus RequestRegistry::Running::status() const {
  if (const std::shared_ptr<Choices> running = choices()) return running->status();
  RequestStatus status;  // it works on its prompt
  status.state = RequestState::kPrefill;
  status.num_prompt_tokens = facts.num_prompt_tokens;
  return status;
}

ListedRequest RequestRegistry::Running::listed() const {
  ListedRequest listed{facts, status()};
  const RequestState state = listed.status.state;
  // The engine sees a slow reader only once its own queue is full too.
  if (writer->paused() && (state == RequestState::kPrefill || state == RequestState::kDecode))
    listed.status.state = RequestState::kPaused;
  return listed;
}

std::vector<ListedRequest> RequestRegistry::list(const std::string& key_digest) const {
  std::vector<std::shared_ptr<Running>> mine;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Running>& request : requests_)
      if (request->facts.key_digest == key_digest && !request->cancelled) mine.push_back(request);
  }
  std::vector<ListedRequest> listed;
  for (const std::shared_ptr<Running>& request : mine) listed.push_back(request->listed());
  return listed;
}

std::vector<RegisteredChoice> RequestRegistry::running_choices() const {
  std::vector<std::shared_ptr<Running>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(requests_.rbegin(), requests_.rend());
  }
  std::vector<RegisteredChoice> running;
  for (const std::shared_ptr<Running>& request : all) {
    const std::shared_ptr<Choices> choices = request->choices();
    if (choices == nullptr) running.push_back({request->number, 0});
    for (int i = 0; choices != nullptr && i < choices->size(); ++i) {
      const RequestStatus status = choices->status(i);
      if (status.state == RequestState::kPrefill || status.state == RequestState::kDecode ||
          status.state == RequestState::kPaused)
        running.push_back({request->number, status.num_completion_tokens});
    }
  }
  return running;
}

std::shared_ptr<RequestRegistry::Running> RequestRegistry::running(const std::string& key_digest,
                                                                   const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Running>& request : requests_) {
    const RequestFacts& facts = request->facts;
    if (facts.key_digest == key_digest && (facts.id == id || facts.request_id == id) &&
        !request->cancelled)
      return request;
  }
  return nullptr;
}

std::optional<ListedRequest> RequestRegistry::find(const std::string& key_digest,
                                                   const std::string& id) const {
  const std::shared_ptr<Running> request = running(key_digest, id);
  if (request == nullptr) return std::nullopt;
  return request->listed();
}

std::optional<ListedRequest> RequestRegistry::cancel(const std::string& key_digest,
                                                     const std::string& id) {
  const std::shared_ptr<Running> request = running(key_digest, id);
  if (request == nullptr || request->writer->closed()) return std::nullopt;
  if (request->cancelled.exchange(true)) return std::nullopt;
  ListedRequest listed = request->listed();
  // Runs the entry's callback, which cancels the choices.
  request->writer->fail(api_error("request_cancelled", "the request was cancelled"));
  if (!request->writer->closed()) return std::nullopt;  // its answer was complete already
  request->stop();
  if (const std::shared_ptr<Choices> choices = request->choices()) {
    choices->wait_end();
    listed.status.num_completion_tokens = choices->status().num_completion_tokens;
  } else {
    std::unique_lock lock(mutex_);
    left_.wait(lock, [&] { return request->left; });
  }
  return listed;
}

void RequestRegistry::drop_queued(const ApiError& error) {
  std::vector<std::shared_ptr<Running>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(requests_.begin(), requests_.end());
  }
  for (const std::shared_ptr<Running>& request : all) {
    const RequestStatus status = request->status();
    if (status.state != RequestState::kQueued || status.num_completion_tokens > 0) continue;
    request->dropped = true;
    request->writer->fail(error);
  }
}

void RequestRegistry::count_close(const Running& request, CloseReason reason) {
  switch (reason) {
    case CloseReason::kClientGone:
      ++counters_.cancelled_by_client;
      switch (request.status().state) {
        case RequestState::kQueued:
          ++counters_.left_queued;
          break;
        case RequestState::kPrefill:
          ++counters_.left_prefill;
          break;
        default:
          ++counters_.left_decode;
      }
      break;
    case CloseReason::kClientTooSlow:
      ++counters_.cancelled_by_slow_reader;
      break;
    case CloseReason::kDraining:
      ++counters_.cancelled_by_drain;
      break;
    case CloseReason::kFailed:  // by its own route when not by cancel()
      if (request.cancelled) ++counters_.cancelled_by_api;
      if (request.dropped) ++counters_.cancelled_by_drain;
      break;
  }
}

// ---- An entry

RequestRegistry::Entry::Entry(RequestRegistry* registry, RequestFacts facts,
                              std::shared_ptr<ResponseWriter> writer)
    : registry_(registry), request_(std::make_shared<Running>()) {
  request_->facts = std::move(facts);
  request_->writer = std::move(writer);
  if (registry_ != nullptr) {
    const std::lock_guard lock(registry_->mutex_);
    request_->number = registry_->num_entered_++;
    place_ = registry_->requests_.insert(registry_->requests_.begin(), request_);
  }
  request_->writer->on_closed([this](CloseReason reason) {
    if (registry_ != nullptr) registry_->count_close(*request_, reason);
    request_->stop();
  });
}

RequestRegistry::Entry::Entry(RequestRegistry* registry, RequestFacts facts,
                              std::shared_ptr<ResponseWriter> writer,
                              std::shared_ptr<Choices> choices)
    : Entry(registry, std::move(facts), std::move(writer)) {
  start(std::move(choices));
}

void RequestRegistry::Entry::start(std::shared_ptr<Choices> choices) {
  if (registry_ != nullptr)
    registry_->counters_.num_choices.observe(static_cast<double>(request_->facts.num_choices));
  request_->set_choices(std::move(choices));
}

RequestRegistry::Entry::~Entry() {
  request_->writer->on_closed(nullptr);
  if (registry_ == nullptr) return;
  {
    const std::lock_guard lock(registry_->mutex_);
    registry_->requests_.erase(place_);
    request_->left = true;
    registry_->left_.notify_all();
  }
  RequestCounters& counters = registry_->counters_;
  const std::shared_ptr<Choices> started = request_->choices();
  if (started == nullptr) {
    if (request_->stopped.stop_requested()) counters.ended_abort += request_->facts.num_choices;
    return;
  }
  const Choices& choices = *started;
  for (int i = 0; i < choices.size(); ++i) {
    // The route gave up on a choice that still runs: its answer cannot be delivered.
    const FinishReason reason =
        choices.has_ended(i) ? choices.result(i).finish_reason : FinishReason::kCancelled;
    if (reason == FinishReason::kCancelled)
      ++counters.ended_abort;
    else if (reason == FinishReason::kError)
      ++counters.ended_error;
    else if (choices.called_tools(i))
      ++counters.ended_tool_calls;
    else if (reason == FinishReason::kLength)
      ++counters.ended_length;
    else
      ++counters.ended_stop;
  }
}

}  // namespace invar::server
