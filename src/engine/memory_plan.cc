// Memory: reading what is free, and dividing it.
#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "backend/recurrent_ops.h"
#include "base/log.h"

namespace invar {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Files of /proc and /sys have no size to map; an absent one reads as empty.
std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

uint64_t number_after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return 0;
  return std::strtoull(std::string(text.substr(at + key.size(), 32)).c_str(), nullptr, 10);
}

uint64_t headroom_at(const std::string& folder) {
  const uint64_t v2 =
      cgroup_headroom(read_text(folder + "/memory.max"), read_text(folder + "/memory.current"),
                      read_text(folder + "/memory.stat"));
  const uint64_t v1 = cgroup_headroom(read_text(folder + "/memory.limit_in_bytes"),
                                      read_text(folder + "/memory.usage_in_bytes"),
                                      read_text(folder + "/memory.stat"));
  return std::min(v1, v2);
}

uint64_t pages_for(int64_t positions) {
  return (static_cast<uint64_t>(positions) + kPagePositions - 1) / kPagePositions;
}

// Bytes that keys and values may take.
uint64_t kv_budget(const MemoryQuestion& q) {
  if (q.kv_bytes > 0) return static_cast<uint64_t>(q.kv_bytes);
  const uint64_t taken = q.weight_bytes + q.state_bytes;
  return q.free_bytes > taken ? (q.free_bytes - taken) / 2 : 0;
}

}  // namespace

uint64_t parse_mem_available(std::string_view meminfo) {
  return number_after(meminfo, "MemAvailable:") * 1024;
}

uint64_t cgroup_headroom(std::string_view limit, std::string_view usage, std::string_view stat) {
  if (limit.empty() || limit.starts_with("max")) return kNoLimit;
  const uint64_t most = std::strtoull(std::string(limit).c_str(), nullptr, 10);
  if (most >= (uint64_t{1} << 60)) return kNoLimit;  // cgroup v1 writes a huge number
  uint64_t used = std::strtoull(std::string(usage).c_str(), nullptr, 10);
  used -= std::min(used, number_after(stat, "inactive_file "));
  return most > used ? most - used : 0;
}

FreeMemory free_memory() {
  FreeMemory result{parse_mem_available(read_text("/proc/meminfo")), "MemAvailable"};
  if (result.bytes == 0) result.bytes = kNoLimit;
  const auto consider = [&](const std::string& folder) {
    const uint64_t bytes = headroom_at(folder);
    if (bytes < result.bytes) result = {bytes, "cgroup " + folder};
  };
  consider("/sys/fs/cgroup");
  consider("/sys/fs/cgroup/memory");
  // Our own group and its parents: "0::/a/b" (v2) or "5:memory:/a/b" (v1).
  std::istringstream groups(read_text("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const bool v2 = line.starts_with("0::"), v1 = line.find(":memory:") != std::string::npos;
    if (!v1 && !v2) continue;
    std::string path = line.substr(line.find(':', line.find(':') + 1) + 1);
    for (; path.size() > 1; path.resize(path.rfind('/')))
      consider((v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + path);
  }
  return result;
}

FreeMemory free_memory(const Backend& backend) {
  std::optional<DeviceRoom> device = backend.device_room();
  if (!device) return free_memory();
  return {device->free_bytes, std::move(device->device)};
}

std::string readable_bytes(uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double value = static_cast<double>(bytes);
  return value < 1024 * kMiB ? format("%.1f MiB", value / kMiB)
                             : format("%.1f GiB", value / kMiB / 1024);
}

int64_t largest_context(const MemoryQuestion& q) {
  const uint64_t most = static_cast<uint64_t>(std::max<int64_t>(q.max_positions, 0));
  if (q.weight_bytes + q.state_bytes > q.free_bytes) return 0;
  if (q.page_bytes == 0) return static_cast<int64_t>(most);
  return static_cast<int64_t>(std::min(most, kv_budget(q) / q.page_bytes * kPagePositions));
}

Result<StatePlan> plan_states(const StateQuestion& q) {
  StatePlan plan;
  if (q.slot_bytes == 0) return plan;
  if (q.cache_bytes > 0 && static_cast<uint64_t>(q.cache_bytes) < q.slot_bytes)
    return invalid_argument(
        "state_cache_bytes %lld (--state-cache-bytes) hold no state: one takes %llu; 0 is for none",
        static_cast<long long>(q.cache_bytes), static_cast<unsigned long long>(q.slot_bytes));
  const bool keeps_pages =
      q.prefix_cache_bytes < 0 || static_cast<uint64_t>(q.prefix_cache_bytes) >= q.page_bytes;
  uint64_t room = 0;
  if (keeps_pages && q.cache_bytes >= 0) room = static_cast<uint64_t>(q.cache_bytes);
  if (keeps_pages && q.cache_bytes < 0)
    room = std::min(8 * q.slot_bytes, (q.free_bytes - std::min(q.free_bytes, q.weight_bytes)) / 8);
  plan.num_snapshots = static_cast<int>(std::min<uint64_t>(room / q.slot_bytes, 4096));
  plan.bytes = q.slot_bytes * static_cast<uint64_t>(q.max_sequences + plan.num_snapshots);
  if (keeps_pages && q.cache_bytes < 0 && plan.num_snapshots == 0)
    log(LogLevel::kWarning,
        "no state of recurrent layers is kept for later prompts: one takes %s, more than an eighth "
        "of what the weights leave; --state-cache-bytes keeps some all the same",
        readable_bytes(q.slot_bytes).c_str());
  return plan;
}

uint64_t state_slot_bytes(Backend& backend, std::span<const RecurrentLayerShape> layers) {
  RecurrentOps* const ops = backend.recurrent_ops();
  return ops == nullptr || layers.empty() ? 0 : ops->state_slot_bytes(layers);
}

Result<MemoryPlan> plan_memory(const MemoryQuestion& q) {
  if (q.context < 0 || q.kv_bytes < 0)
    return invalid_argument("context and kv_bytes cannot be negative");
  if (q.context > q.max_positions)
    return invalid_argument("context %ld is more than the model's full window of %ld positions",
                            long{q.context}, long{q.max_positions});
  if (q.weight_bytes <= q.free_bytes && q.weight_bytes + q.state_bytes > q.free_bytes)
    return resource_exhausted(
        "the weights take %s, the states of recurrent layers for %d sequences %s, and %s of memory "
        "are free; lower max_sequences (--parallel) or state_cache_bytes (--state-cache-bytes)",
        readable_bytes(q.weight_bytes).c_str(), q.max_sequences,
        readable_bytes(q.state_bytes).c_str(), readable_bytes(q.free_bytes).c_str());
  if (q.weight_bytes > q.free_bytes)
    return resource_exhausted(
        "the weights take %s and %s of memory are free; use a smaller or more "
        "quantized model",
        readable_bytes(q.weight_bytes).c_str(), readable_bytes(q.free_bytes).c_str());
  MemoryPlan plan;
  plan.context = q.context > 0 ? q.context : q.max_positions;
  const uint64_t needed = pages_for(plan.context) * q.page_bytes;
  const uint64_t budget = kv_budget(q);
  if (needed > budget) {
    const int64_t fits = largest_context(q);
    if (fits == 0)
      return resource_exhausted(
          "keys and values of %d positions take %s and %s are there for them%s", kPagePositions,
          readable_bytes(q.page_bytes).c_str(), readable_bytes(budget).c_str(),
          q.kv_bytes > 0 ? "; raise kv_bytes" : "; use a smaller model");
    return resource_exhausted(
        "a context of %ld positions takes %s for keys and values, %s are there for them (%s); "
        "a context of %ld fits%s",
        long{plan.context}, readable_bytes(needed).c_str(), readable_bytes(budget).c_str(),
        q.kv_bytes > 0 ? "kv_bytes" : "half of what weights and states leave", long{fits},
        q.kv_bytes > 0 ? "; or raise kv_bytes" : "; or set kv_bytes to take more");
  }
  uint64_t num_pages = pages_for(plan.context);
  if (q.kv_bytes > 0 && q.page_bytes > 0)  // more pages than all sequences can fill are no use
    num_pages = std::min(budget / q.page_bytes, num_pages * static_cast<uint64_t>(q.max_sequences));
  plan.num_pages = static_cast<int>(num_pages);
  plan.kv_bytes = num_pages * q.page_bytes;
  return plan;
}

Result<void> check_kv_room(const MemoryPlan& plan, uint64_t page_bytes, const FreeMemory& free) {
  if (plan.kv_bytes <= free.bytes) return {};
  const uint64_t fitting = free.bytes / std::max<uint64_t>(page_bytes, 1) * kPagePositions;
  return resource_exhausted(
      "keys and values would take %s (kv_bytes) for a context of %ld, and %s are free beside the "
      "weights (%s); lower kv_bytes, or context: %llu positions fit",
      readable_bytes(plan.kv_bytes).c_str(), long{plan.context}, readable_bytes(free.bytes).c_str(),
      free.limited_by.c_str(), static_cast<unsigned long long>(fitting));
}

}  // namespace invar
