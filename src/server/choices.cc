#include "server/choices.h"

#include <algorithm>
#include <new>

#include "base/result.h"

namespace invar::server {
namespace {

// A reader that is behind makes its engine sequences pause, not this queue grow.
constexpr size_t kMaxQueued = 64;

}  // namespace

std::vector<GenerationRequest> choices_of(const GenerationRequest& request, int num_choices) {
  std::vector<GenerationRequest> requests(static_cast<size_t>(num_choices), request);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].sampling.seed += i;
  return requests;
}

Result<std::unique_ptr<Choices>> Choices::start(Engine& engine,
                                                const std::vector<GenerationRequest>& requests) {
  std::unique_ptr<Choices> choices(new Choices());
  for (const GenerationRequest& request : requests) {
    INVAR_TRY(std::unique_ptr<TokenStream> stream, engine.submit(request));
    choices->streams_.push_back(std::move(stream));
  }
  choices->called_tools_.resize(requests.size());
  if (requests.size() > 1)
    for (int i = 0; i < choices->size(); ++i)
      choices->threads_.emplace_back([c = choices.get(), i] { c->pump(i); });
  return choices;
}

Choices::~Choices() {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  emptied_.notify_all();
  cancel();
  for (std::thread& thread : threads_) thread.join();
}

void Choices::cancel() {
  for (const auto& stream : streams_) stream->cancel();
}

RequestStatus Choices::status() const {
  // The furthest last; a choice that has ended says nothing while others run.
  static constexpr RequestState kOrder[] = {RequestState::kFinishing, RequestState::kQueued,
                                            RequestState::kPreempted, RequestState::kPaused,
                                            RequestState::kPrefill,   RequestState::kDecode};
  const auto rank = [](RequestState state) {
    return std::find(std::begin(kOrder), std::end(kOrder), state) - std::begin(kOrder);
  };
  RequestStatus all = streams_[0]->status();
  for (size_t i = 1; i < streams_.size(); ++i) {
    const RequestStatus one = streams_[i]->status();
    if (rank(one.state) > rank(all.state)) all.state = one.state;
    all.num_completion_tokens += one.num_completion_tokens;
    all.num_kv_pages += one.num_kv_pages;
    all.num_preemptions += one.num_preemptions;
  }
  return all;
}

bool Choices::has_ended(int index) const {
  return streams_[static_cast<size_t>(index)]->status().state == RequestState::kFinishing;
}

void Choices::wait_end() const {
  for (const auto& stream : streams_) stream->wait_end();
}

std::optional<Choices::Event> Choices::next() {
  if (num_ended_ == size()) return std::nullopt;
  Event event;
  if (threads_.empty()) {
    event.token = streams_[0]->next();
  } else {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return out_of_memory_ || !events_.empty(); });
    if (out_of_memory_) throw std::bad_alloc();
    event = std::move(events_.front());
    events_.pop_front();
    emptied_.notify_all();
  }
  if (!event.token) ++num_ended_;
  return event;
}

void Choices::pump(int index) {
  TokenStream& stream = *streams_[static_cast<size_t>(index)];
  try {
    while (std::optional<TokenEvent> token = stream.next()) push({index, std::move(token)});
    push({index, std::nullopt});
  } catch (const std::bad_alloc&) {
    stream.cancel();
    const std::lock_guard lock(mutex_);
    out_of_memory_ = true;
    filled_.notify_one();
  }
}

void Choices::push(Event event) {
  std::unique_lock lock(mutex_);
  emptied_.wait(lock, [&] { return dropped_ || events_.size() < kMaxQueued; });
  events_.push_back(std::move(event));
  filled_.notify_one();
}

}  // namespace invar::server
