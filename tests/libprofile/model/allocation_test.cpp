// What the walks over a segment ask for beside tensors, which LibTorch makes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "libprofile/device/process.h"
#include "libprofile/model/segment_plan.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/allocation_count.h"
#include "tests/support/torch_test.h"

namespace allocation_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// Inputs at which a graph is cut: each takes a node.
std::int64_t cut_inputs(const ResolvedModel& model, const std::vector<int>& layers) {
  std::int64_t count = 0;
  for (const pp::model::detail::PlannedLayer& planned :
       pp::model::detail::plan_segment(model, layers, true).order)
    count += std::ranges::count(planned.source_gradient, true);
  return count;
}

template <class Call>
std::int64_t own_allocations(Call call) {
  const std::int64_t before = pp::test::allocations().own;
  call();
  return pp::test::allocations().own - before;
}

}  // namespace

TEST_SUITE("libprofile/model/allocation") {
  TEST_CASE("the count sees what this executable allocates, and not what LibTorch does") {
    CHECK(own_allocations([] { std::vector<int>(100).swap(*std::make_unique<std::vector<int>>()); }) == 2);
    CHECK(own_allocations([] { const at::Tensor tensor = at::ones({100}); }) == 0);
  }

  TEST_CASE("a pass after another one allocates tensors and nodes of graphs, its backward nothing else") {
    profile::enter_worker_thread(1);
    const ResolvedModel model = language_model();
    const Job job{.model = &model};
    const std::vector<int> layers = cut_at(model, {}).front();
    const Segment segment(model, layers, true);
    const std::shared_ptr<const Weights> weights = segment.initial_weights(1, DType::float32);
    const std::vector<at::Tensor> data = data_of(job, 0);
    std::vector<Tensors> nothing(segment.outputs().size());
    Gradients gradients = segment.empty_gradients();
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    for (int i = 0; i < 3; ++i) {
      Pass pass;
      const std::int64_t forward = own_allocations(
          [&] { pass = segment.forward(weights, data, {.key = {}, .generator = &generator, .buffers = {}}); });
      const bool apart = i == 2;
      const std::int64_t backward = own_allocations([&] {
        if (!apart) segment.backward(pass, nothing, 1.0, gradients);
        if (apart) segment.input_gradient(pass, nothing, 1.0);
        if (apart) segment.weight_gradient(pass, gradients);
      });
      if (i == 0) continue;
      CHECK(forward <= cut_inputs(model, layers));
      CHECK(backward == 0);
    }
  }
}

}  // namespace allocation_test
