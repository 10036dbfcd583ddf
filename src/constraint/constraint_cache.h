// ConstraintCache: compiled constraints by what they were compiled from. Agents send the same tools
// with every turn, and compiling takes up to two seconds.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "invar/constraint.h"
#include "invar/result.h"

namespace invar {

class ConstraintCache {
 public:
  using Compiled = std::shared_ptr<const CompiledConstraint>;
  // Keeps the last used, at most `capacity`, and of what is beyond the first as many as fit
  // `max_bytes`. Constraints grow with use, so the bound holds from one get() to the next.
  explicit ConstraintCache(size_t capacity = 32, size_t max_bytes = size_t{128} << 20)
      : capacity_(capacity), max_bytes_(max_bytes) {}

  // Compiles outside of the lock; errors are not kept. May be called from any thread.
  Result<Compiled> get(const ConstraintSpec& spec,
                       const std::function<Result<Compiled>()>& compile);

 private:
  struct Entry {
    std::string key;
    Compiled compiled;
  };
  Compiled find(const std::string& key);
  void trim();

  const size_t capacity_, max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace invar
