// What the executor costs beside the layers: training with one stage on one worker, in turns with a plain loop
// of the same layers on the same core. The loop is what one would write by hand: forward layer by layer in one
// autograd graph a micro-batch, backward() that adds to the gradients, the optimizer in place.
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/parameters.h"
#include "librun/data/synthetic.h"
#include "librun/run.h"
#include "tests/lab/bench/measure.h"
#include "tests/librun/operation_counts.h"
#include "tests/support/plans.h"

namespace {

using namespace pp;

constexpr int kMicroBatches = 8;
constexpr int kWarmUp = 3;

struct Case {
  const char* name;
  const char* model;
  int mini_batch;
  int steps;     ///< of a round
  double limit;  ///< percent
};
constexpr Case kCases[] = {{"vgg11 (3x32x32)", "vgg11:image=32,classes=10", 64, 9, 3},
                           {"transformer", "transformer", 32, 15, 3},
                           {"mlp 784-6x1024-10", "mlp:width=1024,layers=7", 256, 15, 8}};

class PlainLoop {
 public:
  PlainLoop(const plan::Plan& plan, const run::RunOptions& options)
      : plan_(plan),
        options_(options),
        model_(resolve(plan.model)),
        data_(run::make_synthetic(model_, options.synthetic_samples, options.seed, run::Subset::training,
                                  plan.training.dtype)),
        generator_(at::make_generator<at::CPUGeneratorImpl>(0)),
        optimizer_(std::make_unique<model::Optimizer>(OptimizerName::sgd)),
        loss_(model::bind_loss(model_.graph.loss->op, model_.graph.loss->attributes)),
        weights_(model_.layers.size()) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const Layer& layer = model_.graph.layers[i];
      layers_.push_back(model::bind_layer(layer.op, layer.attributes));
      for (std::size_t p = 0; p < model_.layers[i].parameters.size(); ++p) {
        weights_[i].push_back(model::initial_parameter(model_, static_cast<int>(i), static_cast<int>(p),
                                                       options.seed, plan.training.dtype)
                                  .requires_grad_());
        parameters_.push_back(weights_[i].back());
      }
    }
  }

  void step(std::int64_t step) {
    const int rows = plan_.training.mini_batch / kMicroBatches;
    for (int m = 0; m < kMicroBatches; ++m) {
      std::vector<std::int64_t> samples;
      for (int r = 0; r < rows; ++r) samples.push_back(step * plan_.training.mini_batch + m * rows + r);
      loss(samples, {options_.seed, step, m}).mul(1.0 / kMicroBatches).backward();
    }
    std::vector<at::Tensor> plain, gradients;
    for (const at::Tensor& parameter : parameters_) {
      plain.push_back(parameter.detach());
      gradients.push_back(parameter.grad());
    }
    optimizer_->step(plain, gradients, options_.learning_rate);
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  at::Tensor loss(const std::vector<std::int64_t>& samples, const model::RandomKey& key) {
    std::vector<model::Tensors> outputs(weights_.size());
    const auto tensor = [&](const TensorSource& source) {
      if (source.kind == TensorSource::Kind::layer)
        return outputs[static_cast<std::size_t>(source.index)][static_cast<std::size_t>(source.output)];
      return data_.rows(source, samples);
    };
    model::LayerContext context;
    context.key = key;
    context.generator = &generator_;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      context.layer = static_cast<int>(i);
      context.seeded = false;
      model::Tensors inputs;
      for (const TensorSource& source : model_.layers[i].sources) inputs.push_back(tensor(source));
      outputs[i] = layers_[i].forward(inputs, weights_[i], context);
    }
    const std::array ends{tensor(model_.loss_sources[0]), tensor(model_.loss_sources[1])};
    const at::Tensor loss = loss_.forward(ends, {}, context)[0];
    if (!std::isfinite(loss.item<double>())) throw Error(ErrorKind::run, "the loss is not finite");
    return loss;
  }

  const plan::Plan& plan_;
  const run::RunOptions& options_;
  ResolvedModel model_;
  run::MemoryDataset data_;
  at::Generator generator_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::vector<model::BoundLayer> layers_;
  model::BoundLayer loss_;
  std::vector<std::vector<at::Tensor>> weights_;  ///< per layer
  std::vector<at::Tensor> parameters_;
};

class Silence : public run::Observer {
 public:
  void step(const run::Progress&) override {}
  void epoch(const run::EpochReport&) override {}
  void warning(std::string_view text) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
};

/// Median seconds of a step, on a thread of its own on the first core, as a worker's is.
double plain_step(const plan::Plan& plan, const run::RunOptions& options) {
  bench::Sample times;
  std::exception_ptr error;
  std::thread([&] {
    try {
      profile::pin_thread(std::vector{profile::usable_cores().front()});
      profile::enter_device(at::kCPU, 1);
      PlainLoop loop(plan, options);
      for (std::int64_t step = 0; step < *options.steps; ++step) {
        const auto begin = std::chrono::steady_clock::now();
        loop.step(step);
        const Seconds time = std::chrono::steady_clock::now() - begin;
        if (step >= kWarmUp) times.values.push_back(time.count());
      }
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return times.median();
}

void measure(const Case& wanted, int rounds) {
  const plan::Plan plan = make_plan({.model = model::build_family(wanted.model),
                                     .schedule = "1f1b",
                                     .mini_batch = wanted.mini_batch,
                                     .micro_batches = kMicroBatches});
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = wanted.mini_batch * wanted.steps;
  options.steps = wanted.steps;
  options.evaluate = false;
  options.learning_rate = 1e-4;
  Silence silence;
  bench::Sample plain, executed, overhead, outside;
  for (int round = 0; round < rounds; ++round) {
    const double alone = plain_step(plan, options);
    const run::RunReport report = run::run(plan, options, silence);
    plain.values.push_back(1e3 * alone);
    executed.values.push_back(1e3 * report.step.count());
    overhead.values.push_back(100 * (report.step.count() / alone - 1));
    outside.values.push_back(100 * report.bubble_fraction);
  }
  std::printf("%-18s %6d %4d %10.2f %10.2f %9.2f %% %7.2f .. %.2f %8.2f %% %6.0f %%\n", wanted.name,
              wanted.mini_batch, kMicroBatches, plain.median(), executed.median(), overhead.median(),
              overhead.least(), overhead.most(), outside.median(), wanted.limit);
}

struct Pipeline {
  const char* name;
  const char* model;
  std::vector<int> cuts;
  const char* schedule;
};
const Pipeline kPipelines[] = {
    {"mlp, 1f1b", "mlp:width=64,layers=8", {4, 8, 12}, "1f1b"},
    {"mlp, zb-h1", "mlp:width=64,layers=8", {4, 8, 12}, "zb-h1"},
    {"mlp, interleaved", "mlp:width=64,layers=8", {2, 4, 6, 8, 10, 12, 14}, "interleaved"},
    {"resnet18, 1f1b", "resnet18:image=32,classes=10", {16, 32, 48}, "1f1b"},
    {"transformer, 1f1b", "transformer:layers=4,width=32,heads=2", {10, 18, 26}, "1f1b"},
};

/// Beside tensors, in steady state, of four workers: steps 12 to 18 of 20.
void count(const Pipeline& wanted) {
  const plan::Plan plan = make_plan({.model = model::build_family(wanted.model),
                                     .cuts = wanted.cuts,
                                     .schedule = wanted.schedule,
                                     .mini_batch = 2 * kMicroBatches,
                                     .micro_batches = kMicroBatches});
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 2 * kMicroBatches * 20;
  options.steps = 20;
  options.learning_rate = 1e-4;
  const pp::test::RunCounts counts = pp::test::count_operations(plan, options, 12);
  const pp::test::OperationCounts all = counts.all();
  const auto each = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(all.operations);
  };
  std::printf("%-18s %11ld %12.3f %10.3f %18.3f ", wanted.name, static_cast<long>(all.operations),
              each(all.allocations), each(all.locks), each(counts.locks_of_many));
  for (const auto& [kind, of_kind] : counts.kinds) {
    std::printf(" %s %.2f", std::string(name_of(kind)).c_str(),
                static_cast<double>(of_kind.allocations) / static_cast<double>(of_kind.operations));
  }
  std::puts("");
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  if (argc == 3 && std::strcmp(argv[1], "--rounds") == 0) rounds = std::max(0, std::atoi(argv[2]));
  if (argc == 2 || (argc > 1 && argc != 3)) {
    std::puts(
        "scripts/bench run [--rounds N]: one stage on one worker against a plain loop of the same layers on "
        "the "
        "same core,\n"
        "in turns. over: what a step takes longer, median of the rounds, with the least and the most.\n"
        "outside: the share of a step that is in no operation. limit: of over.\n"
        "Then four workers in steady state, per operation: allocations of our own code beside tensors, "
        "mutexes\n"
        "that it takes, and those of them that more than two workers take.");
    return std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  profile::prepare_process();
  if (rounds > 0)
    std::puts(
        "model              sample    M   plain ms    run ms       over        rounds      outside  limit");
  for (const Case& wanted : kCases) {
    if (rounds > 0) measure(wanted, rounds);
  }
  std::puts(
      "\nfour workers       operations  allocations      locks   locks of 3 and more   allocations by kind");
  for (const Pipeline& wanted : kPipelines) count(wanted);
}
