// Broken files, made from good ones: truncated at every byte, every number of the header set to its
// ends, bits flipped. Each must load or be refused quickly, without a signal and without memory
// beyond the file's own scale. Run under AddressSanitizer too: the buffers here end where the file
// ends.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "../base/colliding_keys.h"
#include "gguf_writer.h"
#include "safetensors_writer.h"
#include "weights/gguf_parse.h"
#include "weights/safetensors_header.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INVAR_COUNT_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INVAR_COUNT_ALLOCATIONS 0
#endif
#endif
#ifndef INVAR_COUNT_ALLOCATIONS
#define INVAR_COUNT_ALLOCATIONS 1
#endif

namespace {
// Bytes that new holds, and the most it held since reset.
std::atomic<size_t> live_bytes{0}, peak_bytes{0};
}  // namespace

#if INVAR_COUNT_ALLOCATIONS
void* operator new(size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) std::abort();
  const size_t live = live_bytes += malloc_usable_size(p);
  if (live > peak_bytes) peak_bytes = live;
  return p;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) live_bytes -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
#endif

namespace invar {
namespace {

using testing::bytes_of;
using testing::GgufWriter;
using testing::SafetensorsWriter;

constexpr size_t kMaxExtraBytes = 4u << 20;  // for files of a few KB
// CPU time. The bar is 2 s; four times that is for slow CI machines, and sanitizers get what they
// need.
constexpr double kMaxSeconds = INVAR_COUNT_ALLOCATIONS ? 8 : 100;

// CPU time of this thread: a busy machine must not fail a test.
class Stopwatch {
 public:
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double start_ = now();
};

struct Outcome {
  int loaded = 0, refused = 0;
};

// Parses a copy that ends with its heap block, and reads every byte of what it found.
void try_gguf(const std::vector<uint8_t>& file, const std::string& what, Outcome& outcome) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  const size_t before = live_bytes;
  peak_bytes = before;
  const Stopwatch watch;
  {
    auto parsed = parse_gguf(bytes);
    if (parsed) {
      ++outcome.loaded;
      for (const GgufTensor& tensor : parsed->tensors) {
        ASSERT_LE(tensor.begin, bytes.size()) << what;
        ASSERT_LE(tensor.num_bytes, bytes.size() - tensor.begin) << what;
        int64_t count = 1;
        for (const int64_t dim : tensor.shape) count *= dim;
        std::vector<float> values(static_cast<size_t>(count));
        dequantize_blocks(tensor.format, bytes.data() + tensor.begin, count, values.data());
      }
    } else {
      ++outcome.refused;
      ASSERT_FALSE(parsed.error().message.empty()) << what;
    }
  }
  ASSERT_LT(watch.seconds(), kMaxSeconds) << what;
  ASSERT_LT(peak_bytes - before, kMaxExtraBytes) << what;
}

GgufWriter small_model() {
  GgufWriter gguf;
  gguf.add("general.architecture", "llama");
  gguf.add("general.alignment", uint32_t{32});
  gguf.add("llama.block_count", uint32_t{1});
  gguf.add("llama.eps", 1e-5f);
  gguf.add("llama.big", uint64_t{1} << 40);
  gguf.add("llama.flag", true);
  gguf.add_array<int32_t>("llama.counts", {1, 2, 3});
  gguf.add_nested<uint16_t>("llama.nested", {{1}, {2, 3}});
  gguf.add("general.sampling.temp", 0.7);
  gguf.add("tokenizer.ggml.model", "gpt2");
  gguf.add_strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  gguf.add_array<float>("tokenizer.ggml.scores", {0, 1, 2});
  gguf.add_array<int32_t>("tokenizer.ggml.token_type", {1, 1, 3});
  gguf.add_strings("tokenizer.ggml.merges", {"a b"});
  gguf.add("tokenizer.chat_template", "{{ messages }}");
  gguf.add_f32("output_norm.weight", {8}, std::vector<float>(8, 1.f));
  gguf.add_tensor("token_embd.weight", {3, 32}, 8, std::vector<uint8_t>(3 * 34, 1));
  gguf.add_tensor("blk.0.attn_q.weight", {1, 256}, 12, std::vector<uint8_t>(144, 2));
  return gguf;
}

TEST(HostileGgufTest, TruncatedAtEveryByte) {
  const std::vector<uint8_t> good = small_model().bytes();
  Outcome outcome;
  try_gguf(good, "whole", outcome);
  ASSERT_EQ(outcome.loaded, 1);
  for (size_t size = 0; size < good.size(); ++size)
    try_gguf({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)},
             "truncated to " + std::to_string(size), outcome);
  EXPECT_EQ(outcome.loaded, 1) << "every byte of the file matters";
  EXPECT_GT(outcome.refused, 900);
}

TEST(HostileGgufTest, EveryNumberAtItsEnds) {
  GgufWriter writer = small_model();
  const std::vector<uint8_t> good = writer.bytes();
  Outcome outcome;
  int cases = 0;
  for (const GgufWriter::Field& field : writer.fields()) {
    if (!field.is_number) continue;
    uint64_t old = 0;
    std::memcpy(&old, good.data() + field.offset, field.size);
    const uint64_t all = field.size == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * field.size)) - 1;
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, all, all - 1, all / 2, all / 2 + 1, all / 4, all / 8 + 1,
          all / 32 + 1, old + 1, old - 1, old * 2, uint64_t{good.size()},
          uint64_t{good.size() - field.offset - field.size}, uint64_t{0x7fffffff},
          uint64_t{0x80000000}, uint64_t{0xffffffff}, uint64_t{1} << 20}) {
      std::vector<uint8_t> bad = good;
      std::memcpy(bad.data() + field.offset, &value, field.size);
      try_gguf(bad, "byte " + std::to_string(field.offset) + " = " + std::to_string(value),
               outcome);
      ++cases;
    }
  }
  EXPECT_GT(cases, 1000);
  EXPECT_GT(outcome.refused, cases / 2);
}

TEST(HostileGgufTest, FlippedBits) {
  GgufWriter writer = small_model();
  const std::vector<uint8_t> good = writer.bytes();
  Outcome outcome;
  for (size_t bit = 0; bit < 8 * writer.header_bytes(); ++bit) {
    std::vector<uint8_t> bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    try_gguf(bad, "bit " + std::to_string(bit), outcome);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint8_t> bad = good;
    for (int n = 0; n < 1 + i % 8; ++n)
      bad[random() % writer.header_bytes()] = static_cast<uint8_t>(random());
    try_gguf(bad, "random " + std::to_string(i), outcome);
  }
  EXPECT_GT(outcome.refused, 1000);
}

// Large files of little content: counts that the bytes allow but no model has, and lists that would
// cost many times their size.
TEST(HostileGgufTest, LargeFilesStayWithinMemoryAndTime) {
  const auto check = [](const std::vector<uint8_t>& bytes, const char* what) {
    const size_t before = live_bytes;
    peak_bytes = before;
    const Stopwatch watch;
    EXPECT_FALSE(parse_gguf(bytes)) << what;
    EXPECT_LT(watch.seconds(), kMaxSeconds) << what;
    EXPECT_LT(peak_bytes - before, 256u << 20) << what;
  };
  constexpr size_t kSize = 16u << 20;
  const auto header = [](uint64_t num_tensors, uint64_t num_keys) {
    std::vector<uint8_t> all(kSize);
    const uint32_t start[] = {0x46554747, 3};
    const uint64_t counts[] = {num_tensors, num_keys};
    std::memcpy(all.data(), start, 8);
    std::memcpy(all.data() + 8, counts, 16);
    return all;
  };
  std::vector<uint8_t> bytes = header(kSize / 40, 0);
  check(bytes, "many tensors");
  bytes = header(0, kSize / 16);
  check(bytes, "many keys");
  for (const uint32_t type : {0u, 8u, 9u}) {
    GgufWriter gguf;
    std::vector<uint8_t> value(12 + kSize);
    std::memcpy(value.data(), &type, 4);
    const uint64_t count = kSize / (type == 0 ? 1 : type == 8 ? 8 : 12);
    std::memcpy(value.data() + 4, &count, 8);
    gguf.add_raw("list", 9, value);
    check(gguf.bytes(), "a long list");
  }
  {
    // Arrays of empty arrays, just below the limit, then one beyond.
    GgufWriter gguf;
    gguf.add_nested<uint32_t>("a", std::vector<std::vector<uint32_t>>(400'000));
    gguf.add_nested<uint32_t>("b", std::vector<std::vector<uint32_t>>(400'000));
    check(gguf.bytes(), "nested lists");
  }
  {
    // Tokens without text: 8 bytes of file each.
    GgufWriter gguf;
    gguf.add_strings("tokenizer.ggml.tokens", std::vector<std::string>(2'000'000));
    gguf.add("end", uint8_t{1});
    gguf.add("end", uint8_t{1});
    check(gguf.bytes(), "empty tokens");
  }
  {
    // 5 arrays in each other.
    GgufWriter gguf;
    std::vector<uint8_t> value;
    for (int i = 0; i < 100; ++i) {
      const auto type = bytes_of<uint32_t>({9});
      const auto count = bytes_of<uint64_t>({1});
      value.insert(value.end(), type.begin(), type.end());
      value.insert(value.end(), count.begin(), count.end());
    }
    gguf.add_raw("deep", 9, value);
    check(gguf.bytes(), "deep nesting");
  }
}

// Names chosen so that the standard library's hash is the same for all: its tables took a minute.
TEST(HostileGgufTest, CollidingNamesTakeLinearTime) {
  GgufWriter gguf;
  for (const std::string& key : testing::colliding_keys(60'000)) gguf.add(key, uint8_t{1});
  for (const std::string& name : testing::colliding_keys(100'000))
    gguf.add_tensor(name, {1}, 0, std::vector<uint8_t>(4));
  const std::vector<uint8_t> bytes = gguf.bytes();
  const Stopwatch watch;
  auto parsed = parse_gguf(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tensors.size(), 100'000u);
  EXPECT_LT(watch.seconds(), kMaxSeconds);
}

void try_safetensors(const std::vector<uint8_t>& file, const std::string& what, Outcome& outcome) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  const size_t before = live_bytes;
  peak_bytes = before;
  const Stopwatch watch;
  {
    auto parsed = parse_safetensors_header(bytes);
    if (parsed) {
      ++outcome.loaded;
      for (const SafetensorsTensor& tensor : parsed->tensors) {
        ASSERT_LE(tensor.begin, bytes.size()) << what;
        ASSERT_LE(tensor.num_bytes, bytes.size() - tensor.begin) << what;
      }
    } else {
      ++outcome.refused;
    }
  }
  ASSERT_LT(watch.seconds(), kMaxSeconds) << what;
  ASSERT_LT(peak_bytes - before, kMaxExtraBytes) << what;
}

TEST(HostileSafetensorsTest, TruncatedFlippedAndExtremeNumbers) {
  SafetensorsWriter w;
  w.add("a.weight", "F32", {2, 3}, std::vector<uint8_t>(24, 1));
  w.add("b.weight", "BF16", {4}, std::vector<uint8_t>(8, 2));
  w.add("c", "U8", {3}, std::vector<uint8_t>(3, 2));
  const std::vector<uint8_t> good = w.bytes();
  Outcome outcome;
  try_safetensors(good, "whole", outcome);
  ASSERT_EQ(outcome.loaded, 1);
  for (size_t size = 0; size < good.size(); ++size)
    try_safetensors({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)},
                    "truncated to " + std::to_string(size), outcome);
  EXPECT_EQ(outcome.loaded, 1);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{good.size()},
                              uint64_t{good.size() - 8}, uint64_t{good.size() - 7}, ~uint64_t{0},
                              ~uint64_t{0} - 1, ~uint64_t{0} - 7, ~uint64_t{0} / 2}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(bad.data(), &size, 8);
    try_safetensors(bad, "header size " + std::to_string(size), outcome);
  }
  for (size_t bit = 0; bit < 8 * (good.size() - 35); ++bit) {
    std::vector<uint8_t> bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    try_safetensors(bad, "bit " + std::to_string(bit), outcome);
  }
  // Every number of the header replaced.
  const std::string header(good.begin() + 8, good.end() - 35);
  for (size_t i = 0; i < header.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(header[i])) == 0) continue;
    if (i > 0 && std::isdigit(static_cast<unsigned char>(header[i - 1])) != 0) continue;
    size_t end = i;
    while (std::isdigit(static_cast<unsigned char>(header[end])) != 0) ++end;
    for (const char* number :
         {"0", "1", "-1", "9223372036854775807", "9223372036854775806", "18446744073709551615",
          "1e999", "1e18", "0.5", "null", "\"\"", "[1]", "4611686018427387904"}) {
      std::string bad = header;
      bad.replace(i, end - i, number);
      try_safetensors(SafetensorsWriter::file(bad, std::vector<uint8_t>(35)), bad, outcome);
    }
  }
  EXPECT_GT(outcome.refused, 1000);
}

TEST(HostileSafetensorsTest, LargeHeadersStayWithinMemory) {
  const auto check = [](const std::string& header, const char* what) {
    const std::vector<uint8_t> bytes = SafetensorsWriter::file(header, {});
    const size_t before = live_bytes;
    peak_bytes = before;
    const Stopwatch watch;
    EXPECT_FALSE(parse_safetensors_header(bytes)) << what;
    EXPECT_LT(watch.seconds(), kMaxSeconds) << what;
    EXPECT_LT(peak_bytes - before, 256u << 20) << what;
  };
  std::string list = "{\"a\":[";
  while (list.size() < (16u << 20)) list += "0,";
  check(list + "0]}", "one long array");
  check("{\"a\":" + std::string(8u << 20, '[') + "}", "deep");
  std::string tensors = "{";
  for (int i = 0; tensors.size() < (20u << 20); ++i)
    tensors += format("\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},", i);
  check(tensors + "\"x\":0}", "many tensors");
}

}  // namespace
}  // namespace invar
