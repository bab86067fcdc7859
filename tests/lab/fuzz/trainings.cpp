// fuzz_trainings: a plan, changed in a few places, that pp-run accepts is trained for a few tiny steps. Its
// weights must be those of training on one device: bit for bit where the runtime promises that, else to
// rounding (double precision, so that a lost or doubled micro-batch stands far above it). A plan with a stream
// has its own recursion.
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "libprofile/core/file.h"
#include "tests/lab/fuzz/campaign.h"
#include "tests/lab/fuzz/corpus.h"
#include "tests/lab/fuzz/inference.h"
#include "tests/lab/fuzz/mutate_json.h"
#include "tests/lab/fuzz/mutate_programs.h"
#include "tests/librun/promise.h"
#include "tests/librun/reference.h"

namespace pp::fuzz {
namespace {

using test::Promise;

enum Category : std::size_t { kRefused, kLarge, kNotFinite, kBits, kRounding, kStream, kUnknown, kFailed };
const std::vector<std::string> kCategories{"refused",
                                           "accepted, too large to train here",
                                           "trained, no finite weights on one device either",
                                           "trained, equal to one device bit for bit",
                                           "trained, equal to one device to rounding",
                                           "trained as a stream, equal to its recursion",
                                           "accepted, without a reference",
                                           "accepted, then failed"};

/// Whether training it takes a moment and a few megabytes.
bool is_small(const plan::Plan& plan) {
  constexpr double kMostElements = 1e6;
  if (plan.workers.size() > 16 || plan.training.mini_batch > 64 || plan.model.layers.size() > 100) return false;
  const auto elements = [](const Shape& shape) {
    double product = 1;
    for (const std::int64_t size : shape) product *= static_cast<double>(size);
    return product;
  };
  double sum = 0;
  for (const ResolvedLayer& layer : resolve(plan.model).layers) {
    for (const TensorType& output : layer.outputs) sum += plan.training.mini_batch * elements(output.shape);
    for (const ParameterSpec& parameter : layer.parameters) sum += elements(parameter.shape);
  }
  return sum < kMostElements;
}

/// Whether some parameter has no gradient. The recursion of a stream decays those too.
bool has_untrained(const plan::Plan& plan) {
  const ResolvedModel model = resolve(plan.model);
  return std::ranges::any_of(
      model.layers, [](const ResolvedLayer& layer) { return std::ranges::count(layer.trained, false) > 0; });
}

class Training {
 public:
  Training(const std::vector<Json>& plans, Case& one)
      : one_(one), random_(one.seed()), json_(random_.pick(plans)) {}

  Result run() {
    change();
    const std::string text = json_.dump(-1, ' ', false, Json::error_handler_t::ignore);
    write_file(one_.folder() / "plan.json", text);
    const run::RunOptions options = options_for();
    one_.doing("pp-run check plan.json --data synthetic --synthetic-samples " +
               std::to_string(options.synthetic_samples) + " --accumulate " +
               std::to_string(options.accumulate));
    try {
      plan_ = plan::parse_plan(text);
      run::check(plan_, options);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal || error.kind() == ErrorKind::run)
        return {kRefused, std::string("internal: ") + error.what()};
      return {kRefused, ""};
    }
    if (!is_small(plan_)) return {kLarge, ""};
    return train(options);
  }

 private:
  /// Mostly the programs, then what a hand would change around them, seldom anything.
  void change() {
    for (std::size_t i = random_.below(4); i > 0; --i) mutate_plan_programs(random_, json_);
    if (random_.one_in(4)) change_training();
    if (random_.one_in(4)) move_boundary();
    if (random_.one_in(8)) swap_lists();
    if (random_.one_in(6)) mutate_json_gently(random_, json_);
    if (random_.one_in(12)) mutate_json(random_, json_);
  }

  void change_training() {
    Json& training = json_["training"];
    switch (random_.below(3)) {
      case 0: training["optimizer"] = random_.pick(EnumNames<OptimizerName>::table).second; break;
      case 1: training["mini_batch"] = random_.integer(4, 12); break;
      default: training["replica_routing"] = random_.one_in(2) ? "split" : "round_robin";
    }
  }

  /// A layer goes to the neighbouring stage.
  void move_boundary() {
    Json& stages = json_["stages"];
    if (stages.size() < 2) return;
    const std::size_t s = random_.below(stages.size() - 1);
    Json& before = stages[s]["layers"];
    Json& after = stages[s + 1]["layers"];
    if (random_.one_in(2)) {
      if (before.empty()) return;
      after.insert(after.begin(), before.back());
      before.erase(before.size() - 1);
    } else {
      if (after.empty()) return;
      before.push_back(after.front());
      after.erase(std::size_t{0});
    }
  }

  /// The replicas of a stage, or the devices of two workers, in another order.
  void swap_lists() {
    Json& stage = random_.pick(json_["stages"])["workers"];
    Json& a = random_.pick(json_["workers"])["device"];
    Json& b = random_.pick(json_["workers"])["device"];
    if (random_.one_in(2)) {
      std::reverse(stage.begin(), stage.end());
    } else if (random_.one_in(2)) {
      std::swap(a, b);
    } else {
      a = b;
    }
  }

  run::RunOptions options_for() {
    run::RunOptions options;
    options.data = "synthetic";
    options.synthetic_samples = random_.one_in(4) ? 18 : 24;
    options.epochs = 1;
    options.learning_rate = 0.05;
    options.weight_decay = random_.one_in(2) ? 0.01 : 0;
    options.evaluate = random_.one_in(4);
    if (random_.one_in(6)) options.accumulate = random_.integer(2, 4);  // streams refuse it
    options.stall_timeout = Seconds(30);
    return options;
  }

  Result train(const run::RunOptions& options) {
    const Promise promise = test::promise_of(plan_);
    if (promise == Promise::unknown) return {kUnknown, ""};
    if (promise == Promise::stream && options.weight_decay > 0 && has_untrained(plan_)) return {kUnknown, ""};
    test::Trained expected;
    std::string refusal;
    one_.doing("train on one device");
    try {
      const auto order = promise == Promise::reversed ? test::Order::descending : test::Order::ascending;
      expected = promise == Promise::stream ? test::train_stream(plan_, options)
                                            : test::train_alone(plan_, options, order);
    } catch (const std::exception& error) {
      refusal = error.what();
    }
    one_.doing("pp-run plan.json");
    test::Run found;
    try {
      found = test::run_plan(plan_, options);
    } catch (const std::exception& error) {
      const bool diverges = refusal.empty() && !is_finite(expected);
      if (diverges) return {kNotFinite, ""};
      return {kFailed, "accepted, then failed: " + std::string(error.what()) +
                           (refusal.empty() ? "" : "; one device: " + refusal)};
    }
    if (!refusal.empty()) return {kFailed, "trained, where one device fails: " + refusal};
    if (!is_finite(expected)) return {kNotFinite, ""};
    Result result = compare(promise, expected, found);
    if (!result.finding.empty() || !random_.one_in(3)) return result;
    one_.doing("pp-run infer plan.json");
    result.finding = check_inference(plan_, found.tensors, one_.folder(), random_);
    return result;
  }

  static bool is_finite(const test::Trained& trained) {
    return std::ranges::all_of(trained.losses, [](double loss) { return std::isfinite(loss); }) &&
           std::ranges::all_of(trained.tensors, [](const auto& named) {
             return named.second.isfinite().all().template item<bool>();
           });
  }

  Result compare(Promise promise, const test::Trained& expected, const test::Run& found) const {
    const std::string difference = test::first_difference(expected.tensors, found.tensors);
    const bool bits = promise == Promise::bits || promise == Promise::reversed;
    const Category category = promise == Promise::stream ? kStream : bits ? kBits : kRounding;
    if (difference.empty()) return {category, ""};
    if (bits) return {category, "weights are not those of one device bit for bit: " + difference};
    if (expected.tensors.size() != found.tensors.size()) return {category, "other weights: " + difference};
    const double largest = test::largest_difference(expected.tensors, found.tensors);
    // Adam divides by the root of the squared gradient + 1e-8: rounding of a gradient near zero grows with it.
    const double exact = plan_.training.optimizer == OptimizerName::sgd ? 1e-9 : 1e-7;
    const double tolerance = plan_.training.dtype == DType::float64   ? exact
                             : plan_.training.dtype == DType::float32 ? 1e-4
                                                                      : 0.1;
    if (largest < tolerance) return {category, ""};
    std::ostringstream by;
    by << "weights are wrong by " << largest << ": " << difference;
    return {category, by.str()};
  }

  Case& one_;
  Random random_;
  Json json_;
  plan::Plan plan_;
};

}  // namespace
}  // namespace pp::fuzz

int main(int argc, char** argv) {
  using namespace pp::fuzz;
  std::vector<pp::Json> plans;
  for (const pp::plan::Plan& plan : trainable_corpus()) plans.push_back(to_json(plan));
  Campaign campaign;
  campaign.name = "fuzz_trainings";
  campaign.categories = kCategories;
  campaign.cpu_seconds = 60;
  campaign.run = [&](Case& one) { return Training(plans, one).run(); };
  return run_campaign(campaign, argc, argv);
}
