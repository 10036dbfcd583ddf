#include "server/admission.h"

#include <utility>

#include "base/check.h"
#include "base/result.h"

namespace invar::server {
namespace {
constexpr int kRetryAfterMs = 1000;
constexpr std::chrono::milliseconds kGrace{100};

}  // namespace

Admission::Place& Admission::Place::operator=(Place&& other) noexcept {
  leave();
  owner_ = std::exchange(other.owner_, nullptr);
  key_ = std::move(other.key_);
  bytes_ = other.bytes_;
  return *this;
}

void Admission::Place::leave() {
  if (owner_ == nullptr) return;
  Admission& owner = *std::exchange(owner_, nullptr);
  const std::lock_guard lock(owner.mutex_);
  --owner.num_requests_;
  owner.bytes_ -= bytes_;
  const auto of_key = owner.of_key_.find(key_);
  INVAR_CHECK(of_key != owner.of_key_.end(), "a place of nobody");
  if (--of_key->second == 0) owner.of_key_.erase(of_key);
  owner.left_.notify_all();
}

std::optional<ApiError> Admission::enter(const std::string& key_digest, uint64_t bytes,
                                         Place& place) {
  std::unique_lock lock(mutex_);
  std::optional<ApiError> error;
  left_.wait_for(lock, kGrace, [&] { return !(error = refusal(key_digest, bytes)); });
  if (error) return error;
  ++num_requests_;
  bytes_ += bytes;
  ++of_key_[key_digest];
  place = Place(*this, key_digest, bytes);
  return std::nullopt;
}

// mutex_ held.
std::optional<ApiError> Admission::refusal(const std::string& key_digest, uint64_t bytes) const {
  const auto refuse = [](const char* code, std::string message) {
    ApiError error = api_error(code, std::move(message));
    error.retry_after_ms = kRetryAfterMs;
    return error;
  };
  if (num_requests_ >= limits_.max_running + limits_.max_waiting)
    return refuse("queue_full", format("%d requests wait already (--max-queue); try again later",
                                       limits_.max_waiting));
  if (num_requests_ >= limits_.max_running && bytes_ + bytes > limits_.max_waiting_bytes)
    return refuse("queue_full",
                  format("requests of %llu MiB wait already; try again later",
                         static_cast<unsigned long long>(limits_.max_waiting_bytes >> 20)));
  const auto of_key = of_key_.find(key_digest);
  if (limits_.max_of_key > 0 && of_key != of_key_.end() && of_key->second >= limits_.max_of_key)
    return refuse("key_limit",
                  format("this key has %d requests running or waiting already (--key-max-running); "
                         "try again when one has ended",
                         limits_.max_of_key));
  return std::nullopt;
}

Handler Admission::guard(Handler handler) {
  return [this, handler = std::move(handler)](Request request,
                                              std::shared_ptr<ResponseWriter> response) {
    Place place;
    if (const auto error = enter(request.key_digest, request.body.size(), place))
      return response->fail(*error);
    handler(std::move(request), std::move(response));
  };
}

}  // namespace invar::server
