// Choices: the replies to one request, read as one sequence of events. Those with one prompt share
// its computation inside the engine.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "invar/invar.h"

namespace invar::server {

// The n choices of one request: choice i draws with seed + i.
std::vector<GenerationRequest> choices_of(const GenerationRequest& request, int num_choices);

class Choices {
 public:
  struct Event {
    int index = 0;
    std::optional<TokenEvent> token;  // nothing: this choice has ended
  };

  // One choice a request. Errors are those of Engine::submit(); then none runs.
  static Result<std::unique_ptr<Choices>> start(Engine& engine,
                                                const std::vector<GenerationRequest>& requests);
  ~Choices();  // cancels what still runs

  // Waits. Nothing more: all choices have ended and their results are there.
  std::optional<Event> next();
  void cancel();  // from any thread
  int size() const { return static_cast<int>(streams_.size()); }
  const GenerationResult& result(int index) const {
    return streams_[static_cast<size_t>(index)]->result();
  }

  // From any thread. The prompt's facts are those of the first choice, the rest of all together;
  // the state is that of the choice that is furthest, as long as one runs.
  RequestStatus status() const;
  RequestStatus status(int index) const { return streams_[static_cast<size_t>(index)]->status(); }
  bool has_ended(int index) const;
  void wait_end() const;  // of all choices, read or not; their pages are free

  // The choice's reply calls tools, which the engine cannot know. By and for the reader's thread.
  void set_called_tools(int index) { called_tools_[static_cast<size_t>(index)] = true; }
  bool called_tools(int index) const { return called_tools_[static_cast<size_t>(index)]; }

 private:
  void pump(int index);
  void push(Event event);

  std::vector<std::unique_ptr<TokenStream>> streams_;
  std::vector<bool> called_tools_;
  int num_ended_ = 0;

  // With more than one choice, a thread reads each.
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  std::deque<Event> events_;
  bool dropped_ = false;
  bool out_of_memory_ = false;  // in a thread of ours: next() is where it is told
};

}  // namespace invar::server
