// scripts/bench layers: what the segment runner takes per layer beside the kernels, on models that compute next
// to nothing.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <string_view>
#include <vector>

#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/segment.h"
#include "tests/support/allocation_count.h"

namespace {

using namespace pp;

constexpr int kRounds = 40;
constexpr int kPasses = 50;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The least time of one part of a pass, and the memory that it asks for.
struct Part {
  double seconds = 1e9;
  test::Allocations allocations{};

  template <class Call>
  void measure(Call call) {
    const test::Allocations before = test::allocations();
    const double begin = thread_seconds();
    for (int i = 0; i < kPasses; ++i) call(i);
    seconds = std::min(seconds, (thread_seconds() - begin) / kPasses);
    const test::Allocations after = test::allocations();
    allocations = {(after.own - before.own) / kPasses, (after.all - before.all) / kPasses};
  }
};

std::vector<at::Tensor> data_of(const ResolvedModel& model) {
  std::vector<at::Tensor> tensors;
  const auto make = [&](const DataTensor& spec) {
    std::vector<std::int64_t> sizes{2};
    sizes.insert(sizes.end(), spec.type.shape.begin(), spec.type.shape.end());
    tensors.push_back(at::empty(sizes, model::scalar_type(spec.type.dtype)).zero_());
  };
  for (const DataTensor& input : model.graph.inputs) make(input);
  for (const DataTensor& target : model.graph.targets) make(target);
  return tensors;
}

void report(const std::string& text) {
  const ResolvedModel model = resolve(model::build_family(text));
  std::vector<int> layers(model.layers.size());
  std::iota(layers.begin(), layers.end(), 0);
  const model::Segment segment(model, layers, true);
  const auto weights = segment.initial_weights(1, DType::float32);
  model::Gradients gradients = segment.empty_gradients();
  const std::vector<at::Tensor> data = data_of(model);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);
  std::vector<model::Tensors> nothing(segment.outputs().size());

  Part forward, backward, input_gradient, weight_gradient;
  std::vector<model::Pass> passes(kPasses);
  const auto run_forward = [&](int i) {
    passes[static_cast<std::size_t>(i)] =
        segment.forward(weights, data, {.key = {}, .generator = &generator, .buffers = {}});
  };
  const auto pass = [&](int i) -> model::Pass& { return passes[static_cast<std::size_t>(i)]; };
  for (int round = 0; round < kRounds; ++round) {
    forward.measure(run_forward);
    backward.measure([&](int i) { segment.backward(pass(i), nothing, 1.0, gradients); });
    for (int i = 0; i < kPasses; ++i) run_forward(i);
    input_gradient.measure([&](int i) { segment.input_gradient(pass(i), nothing, 1.0); });
    weight_gradient.measure([&](int i) { segment.weight_gradient(pass(i), gradients); });
  }
  const double units = static_cast<double>(layers.size() + 1);
  std::cout << std::left << std::setw(50) << text << std::right << std::setw(4) << layers.size() + 1
            << std::fixed;
  for (const Part& part : {forward, backward, input_gradient, weight_gradient}) {
    std::cout << std::setprecision(2) << std::setw(8) << 1e6 * part.seconds / units << std::setprecision(1)
              << std::setw(6) << static_cast<double>(part.allocations.own) / units << std::setw(6)
              << static_cast<double>(part.allocations.all) / units;
  }
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    std::cout << "scripts/bench layers: forward, backward and its halves on two samples of tiny models. Per "
                 "layer: CPU\n"
                 "microseconds (least of 40 rounds), allocations of our own code, allocations of all code.\n";
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  profile::enter_worker_thread(1);
  std::cout << "model, layers                                              F us   own   all    B us   own   "
               "all    I us   own   all"
               "    W us   own   all\n";
  for (const char* model : {"mlp:inputs=4,width=4,layers=12,classes=2", "lenet5",
                            "transformer:layers=2,width=16,heads=2,sequence=4,vocabulary=8"})
    report(model);
}
