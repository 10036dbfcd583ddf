// Keyed hashing: keys chosen against the standard library's hash cost nothing here.
#include "base/keyed_hash.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <set>

#include "base/json.h"
#include "colliding_keys.h"

namespace invar {
namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(KeyedHash, SpreadsKeysThatCollideElsewhere) {
  const std::vector<std::string> keys = testing::colliding_keys(10'000);
  std::set<size_t> standard;
  std::set<uint64_t> keyed, low_bits;
  for (const std::string& key : keys) {
    standard.insert(std::hash<std::string>()(key));
    keyed.insert(keyed_hash(key));
    low_bits.insert(keyed_hash(key) & 0xffff);
  }
#if defined(__GLIBCXX__)
  EXPECT_EQ(standard.size(), 1u) << "the keys of this test no longer attack anything";
#endif
  EXPECT_EQ(keyed.size(), keys.size());
  // 10,000 balls in 65,536 boxes: 9,272 boxes are expected to be hit, with a deviation of 24.
  EXPECT_GT(low_bits.size(), 9'000u);
}

TEST(KeyedHash, EveryByteAndTheLengthMatter) {
  const std::string zeros(40, '\0');
  std::set<uint64_t> hashes;
  for (size_t size = 0; size <= zeros.size(); ++size) {
    hashes.insert(keyed_hash(std::string_view(zeros).substr(0, size)));
    for (size_t i = 0; i < size; ++i) {
      std::string key = zeros.substr(0, size);
      key[i] = 1;
      hashes.insert(keyed_hash(key));
      EXPECT_EQ(keyed_hash(key), keyed_hash(key));
    }
  }
  EXPECT_EQ(hashes.size(), 41u + 40u * 41u / 2u);
}

// With the standard hash these keys took 20 s and more.
TEST(KeyedHash, JsonObjectsTakeLinearTimeOnCollidingKeys) {
  const std::vector<std::string> keys = testing::colliding_keys(100'000);
  const double start = cpu_seconds();
  Json object = Json::object();
  for (const std::string& key : keys) object.set(key, 1);
  EXPECT_EQ(object.members().size(), keys.size());
  EXPECT_LT(cpu_seconds() - start, 2.0);
}

}  // namespace
}  // namespace invar
