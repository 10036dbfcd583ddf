// Memory before a model is loaded: how much this process may still take, and what of it keys and
// values get. Admitted, not hoped for: what does not fit is refused with what would fit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

class Backend;
struct RecurrentLayerShape;

struct FreeMemory {
  uint64_t bytes = 0;
  std::string limited_by;  // "MemAvailable", "cgroup /sys/fs/cgroup/memory.max"
};

// The host's: the smaller of /proc/meminfo's MemAvailable and what every cgroup on our path leaves.
FreeMemory free_memory();
// Where the backend has weights and pages: its device's, or the host's.
FreeMemory free_memory(const Backend& backend);

// The MemAvailable line of /proc/meminfo in bytes; 0 when there is none.
uint64_t parse_mem_available(std::string_view meminfo);
// What a cgroup's limit leaves. The page cache in its usage gives way, so it counts as free.
// `limit` "max" or absurdly large: no limit, UINT64_MAX.
uint64_t cgroup_headroom(std::string_view limit, std::string_view usage, std::string_view stat);

struct MemoryQuestion {
  int64_t max_positions = 0;  // the model's full window
  int64_t context = 0;        // asked for; 0: the full window
  int64_t kv_bytes = 0;       // asked for; 0: what one context needs
  uint64_t page_bytes = 0;    // of 256 positions over all layers
  uint64_t weight_bytes = 0;
  uint64_t state_bytes = 0;  // of recurrent layers: StatePlan's
  uint64_t free_bytes = 0;
  int max_sequences = 1;
};

struct MemoryPlan {
  int64_t context = 0;
  int num_pages = 0;
  uint64_t kv_bytes = 0;
};

// States of recurrent layers: one a running sequence, and snapshots for later prompts.
struct StatePlan {
  int num_snapshots = 0;
  uint64_t bytes = 0;
};

struct StateQuestion {
  uint64_t slot_bytes = 0;  // of one state; 0: the model has none
  int max_sequences = 1;
  int64_t cache_bytes = -1;         // EngineOptions::state_cache_bytes
  int64_t prefix_cache_bytes = -1;  // without pages a state is of no use
  uint64_t page_bytes = 0;
  uint64_t weight_bytes = 0, free_bytes = 0;
};

// kInvalidArgument: cache_bytes hold not a single state.
Result<StatePlan> plan_states(const StateQuestion& question);
// Of a state of all layers, by this backend.
uint64_t state_slot_bytes(Backend& backend, std::span<const RecurrentLayerShape> layers);

// Errors: kInvalidArgument for a context beyond the model's window, kResourceExhausted with what
// fits and the options to set.
Result<MemoryPlan> plan_memory(const MemoryQuestion& question);

// The pages that were asked for with kv_bytes against what is free beside the weights.
Result<void> check_kv_room(const MemoryPlan& plan, uint64_t page_bytes, const FreeMemory& free);

// The most positions for which plan_memory() succeeds; 0: the weights alone are too large.
int64_t largest_context(const MemoryQuestion& question);

std::string readable_bytes(uint64_t bytes);  // "1.5 GiB"

}  // namespace invar
