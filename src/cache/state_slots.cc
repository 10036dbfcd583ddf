#include "cache/state_slots.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace invar {

StateSlots::StateSlots(int num_slots)
    : num_slots_(num_slots), unused_(static_cast<size_t>(num_slots)) {
  free_.reserve(static_cast<size_t>(num_slots));
  reset();
}

std::optional<int32_t> StateSlots::allocate() {
  if (free_.empty()) {
    if (snapshots_.empty()) return std::nullopt;
    forget(std::prev(snapshots_.end()));
    ++num_evictions_;
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateSlots::release(int32_t slot) {
  INVAR_CHECK(slot >= 0 && slot < num_slots_ && num_available() < num_slots_, "slot %d", slot);
  free_.push_back(slot);
}

bool StateSlots::use_if_there(const void* owner, int64_t num_tokens) {
  const auto same =
      std::find_if(snapshots_.begin(), snapshots_.end(), [&](const Snapshot& snapshot) {
        return snapshot.owner == owner && snapshot.num_tokens == num_tokens;
      });
  if (same == snapshots_.end()) return false;
  use(same);
  return true;
}

bool StateSlots::keep(const void* owner, int64_t num_tokens, int32_t slot) {
  if (use_if_there(owner, num_tokens)) return false;
  snapshots_.splice(snapshots_.begin(), unused_, unused_.begin());
  snapshots_.front() = {owner, num_tokens, slot};
  return true;
}

void StateSlots::use(Snapshots::const_iterator snapshot) {
  snapshots_.splice(snapshots_.begin(), snapshots_, snapshot);
}

void StateSlots::drop_all_of(const void* owner) {
  for (auto it = snapshots_.cbegin(); it != snapshots_.cend();) {
    const auto next = std::next(it);
    if (it->owner == owner) forget(it);
    it = next;
  }
}

void StateSlots::move_all(const void* from, const void* to) {
  for (auto it = snapshots_.begin(); it != snapshots_.end();) {
    const auto next = std::next(it);
    if (it->owner == from) {
      const bool is_there =
          std::any_of(snapshots_.begin(), snapshots_.end(), [&](const Snapshot& snapshot) {
            return snapshot.owner == to && snapshot.num_tokens == it->num_tokens;
          });
      if (is_there)
        forget(it);
      else
        it->owner = to;
    }
    it = next;
  }
}

void StateSlots::reset() {
  unused_.splice(unused_.end(), snapshots_);
  free_.clear();
  for (int32_t slot = num_slots_; slot-- > 0;) free_.push_back(slot);
}

void StateSlots::forget(Snapshots::const_iterator snapshot) {
  free_.push_back(snapshot->slot);
  unused_.splice(unused_.end(), snapshots_, snapshot);
}

}  // namespace invar
