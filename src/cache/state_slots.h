// StateSlots: which slots of a StateCache belong to running sequences, and which hold snapshots:
// the state of recurrent layers at some position of a text, kept for whoever comes by there again.
// What the position is a caller says by the page that holds its token and a number of tokens in it
// (prefix_cache.h). The least recently used snapshot gives way when somebody needs a slot.
// Bookkeeping only; the memory is the backend's. Nothing but the constructor allocates.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

namespace invar {

class StateSlots {
 public:
  struct Snapshot {
    const void* owner = nullptr;
    int64_t num_tokens = 0;  // of the owner's, from its first
    int32_t slot = -1;
  };
  using Snapshots = std::list<Snapshot>;

  explicit StateSlots(int num_slots);

  // Slots that allocate() can give: free ones and those of snapshots.
  int num_available() const { return static_cast<int>(free_.size() + snapshots_.size()); }
  int num_snapshots() const { return static_cast<int>(snapshots_.size()); }
  int64_t num_evictions() const { return num_evictions_; }

  std::optional<int32_t> allocate();
  void release(int32_t slot);

  // Whether there is such a snapshot, which is now the most recent.
  bool use_if_there(const void* owner, int64_t num_tokens);
  // The caller's slot becomes a snapshot. False: there is one already (now the most recent), and
  // the slot stays the caller's.
  bool keep(const void* owner, int64_t num_tokens, int32_t slot);
  const Snapshots& snapshots() const { return snapshots_; }  // most recent first
  void use(Snapshots::const_iterator snapshot);
  void drop_all_of(const void* owner);
  // `to` holds the same tokens.
  void move_all(const void* from, const void* to);

  // All slots are free again, whoever used them.
  void reset();

 private:
  void forget(Snapshots::const_iterator snapshot);

  int num_slots_;
  std::vector<int32_t> free_;
  Snapshots snapshots_, unused_;  // as many elements in both as there are slots
  int64_t num_evictions_ = 0;
};

}  // namespace invar
