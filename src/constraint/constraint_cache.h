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
  // Keeps the `capacity` last used.
  explicit ConstraintCache(size_t capacity = 32) : capacity_(capacity) {}

  // Compiles outside of the lock; errors are not kept. May be called from any thread.
  Result<Compiled> get(const ConstraintSpec& spec,
                       const std::function<Result<Compiled>()>& compile);

 private:
  struct Entry {
    std::string key;
    Compiled compiled;
  };
  const size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace invar
