// What the cpu backend says of itself, and the calls that it answers without a kernel.
#include <gtest/gtest.h>

#include <array>

#include "backend/backend.h"
#include "backend/cpu_ops_util.h"

namespace invar {

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);

namespace cpu {
namespace {

TEST(CpuBackend, SaysWhatItIs) {
  BackendOptions options;
  options.num_threads = 2;
  options.isa = "portable";
  std::unique_ptr<Backend> backend = std::move(make_cpu_backend(options)).value();
  EXPECT_EQ(backend->info().name, "cpu");
  EXPECT_EQ(backend->info().arithmetic_id, "cpu-1");
  EXPECT_EQ(backend->info().isa, "portable");
  EXPECT_EQ(backend->info().num_threads, 2);

  BackendOptions precise;
  precise.activation_bits = 12;
  backend = std::move(make_cpu_backend(precise)).value();
  EXPECT_EQ(backend->info().arithmetic_id, "cpu-1-a12");
  EXPECT_EQ(backend->info().isa, isa_name(best_isa()));
  EXPECT_GE(backend->info().num_threads, 1);

  for (const BackendOptions& bad :
       {BackendOptions{.num_threads = -1}, BackendOptions{.num_threads = 100'000},
        BackendOptions{.isa = "mmx"}, BackendOptions{.activation_bits = 9}})
    EXPECT_FALSE(make_cpu_backend(bad).ok());
}

TEST(CpuBackend, GathersRows) {
  std::unique_ptr<Backend> backend = std::move(make_cpu_backend({.num_threads = 1})).value();
  std::vector<float> x = random_floats(50, 17), y(30);
  backend->gather_rows(tensor_of(y, 10), tensor_of(x, 10), std::array<int32_t, 3>{4, 0, 4});
  EXPECT_TRUE(same_bits(&y[0], &x[40], 10));
  EXPECT_TRUE(same_bits(&y[10], &x[0], 10));
  EXPECT_TRUE(same_bits(&y[20], &x[40], 10));
}

}  // namespace
}  // namespace cpu
}  // namespace invar
