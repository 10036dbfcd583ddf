// What the cpu backend says of itself, and the calls that it answers without a kernel.
#include <gtest/gtest.h>

#include <array>

#include "backend/backend.h"
#include "backend/cpu_ops_util.h"

namespace invar {

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);

namespace cpu {
namespace {

BackendOptions options_of(int num_threads, const char* isa, int activation_bits) {
  BackendOptions options;
  options.num_threads = num_threads;
  options.isa = isa;
  options.activation_bits = activation_bits;
  return options;
}

TEST(CpuBackend, SaysWhatItIs) {
  std::unique_ptr<Backend> backend =
      std::move(make_cpu_backend(options_of(2, "portable", 8))).value();
  EXPECT_EQ(backend->info().name, "cpu");
  EXPECT_EQ(backend->info().arithmetic_id, "cpu-1");
  EXPECT_EQ(backend->info().isa, "portable");
  EXPECT_EQ(backend->info().num_threads, 2);

  backend = std::move(make_cpu_backend(options_of(0, "", 12))).value();
  EXPECT_EQ(backend->info().arithmetic_id, "cpu-1-a12");
  EXPECT_EQ(backend->info().isa, isa_name(best_isa()));
  EXPECT_GE(backend->info().num_threads, 1);

  EXPECT_FALSE(make_cpu_backend(options_of(-1, "", 8)).ok());
  EXPECT_FALSE(make_cpu_backend(options_of(100'000, "", 8)).ok());
  EXPECT_FALSE(make_cpu_backend(options_of(1, "mmx", 8)).ok());
  EXPECT_FALSE(make_cpu_backend(options_of(1, "", 9)).ok());
}

TEST(CpuBackend, GathersRows) {
  std::unique_ptr<Backend> backend = std::move(make_cpu_backend(options_of(1, "", 8))).value();
  std::vector<float> x = random_floats(50, 17), y(30);
  backend->gather_rows(tensor_of(y, 10), tensor_of(x, 10), std::array<int32_t, 3>{4, 0, 4});
  EXPECT_TRUE(same_bits(&y[0], &x[40], 10));
  EXPECT_TRUE(same_bits(&y[10], &x[0], 10));
  EXPECT_TRUE(same_bits(&y[20], &x[40], 10));
}

}  // namespace
}  // namespace cpu
}  // namespace invar
