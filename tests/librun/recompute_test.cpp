// Plans that recompute train as all others do.
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace recompute_test {

using namespace pp;
using plan::Recompute;

namespace {

run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 3;
  options.learning_rate = 0.05;
  options.evaluate = false;
  return options;
}

std::vector<std::string> every(std::size_t step, const ModelGraph& model) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < model.layers.size(); i += step) names.push_back(model.layers[i].name);
  return names;
}

/// Three stages: none, R, its layers, or a mixture, under three schedules; every bit as training by the book.
void check_recompute(const ModelGraph& model) {
  const int layers = static_cast<int>(model.layers.size());
  PlanSpec spec{.model = model, .cuts = {layers / 3, 2 * layers / 3}};
  const test::Trained expected = test::train_alone(make_plan(spec), short_run());
  const auto check = [&](std::vector<Recompute> modes, std::vector<std::string> names) {
    spec.recompute = std::move(modes);
    spec.rerun_layers = std::move(names);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      CAPTURE(schedule);
      spec.schedule = schedule;
      const test::Run found = test::run_plan(make_plan(spec), short_run());
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == expected.losses);
    }
  };
  check({Recompute::always}, {});
  check({Recompute::except_last}, {});
  check({}, every(1, model));
  check({}, every(3, model));
  std::vector<std::string> last;  // of the last stage; the first recomputes as a whole
  for (std::size_t i = static_cast<std::size_t>(spec.cuts[1]); i < model.layers.size(); i += 2)
    last.push_back(model.layers[i].name);
  check({Recompute::always, Recompute::never, Recompute::never}, last);
}

/// What a worker held of activations at its peak.
Bytes saved_peak(const PlanSpec& spec, std::size_t worker) {
  return test::run_plan(make_plan(spec), short_run()).report.workers[worker].saved;
}

}  // namespace

TEST_SUITE("librun/recompute") {
  TEST_CASE("mlp with dropout: every way to recompute equals the single device bit for bit") {
    check_recompute(test::dropout_mlp());
  }

  TEST_CASE("lenet5 equals the single device") { check_recompute(model::build_family("lenet5:image=12")); }

  TEST_CASE("resnet18 equals the single device: running statistics move once") {
    check_recompute(model::build_family("resnet18:classes=4,image=32,width=4"));
  }

  TEST_CASE("transformer with dropout equals the single device") {
    check_recompute(
        model::build_family("transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2"));
  }

  TEST_CASE("recurrences with attention equal the single device") {
    check_recompute(model::build_family("gnmt:layers=3,width=8,vocabulary=13,source=5,target=4"));
  }

  TEST_CASE("stashed versions: a recompute runs with the weights of its forward") {
    PlanSpec spec{.model = test::dropout_mlp(), .cuts = {3, 5}, .schedule = "pipedream", .micro_batches = 1};
    const test::Trained expected = test::train_delayed(make_plan(spec), short_run());
    spec.recompute = {Recompute::always};
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), short_run()).tensors) == "");
    spec.recompute = {};
    spec.rerun_layers = every(1, spec.model);
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), short_run()).tensors) == "");
  }

  TEST_CASE("a stage that recomputes releases what its layers save") {
    // gpipe, four micro-batches of two float32 samples in flight in stage 0: fc0 keeps x (40 bytes), tanh0 its
    // result (48), which fc1 reads, tanh1 its result (48), which stage 1 reads.
    profile::install_memory_meter();
    PlanSpec spec{.model = test::mlp(2), .cuts = {4}, .schedule = "gpipe"};
    CHECK(saved_peak(spec, 0) == Bytes(4 * (40 + 48 + 48)));
    // Its own recompute keeps nothing: x is cut from the data again. One micro-batch is there again at a time,
    // beside what stage 1 holds.
    spec.recompute = {Recompute::always, Recompute::never};
    CHECK(saved_peak(spec, 0) <= Bytes(4 * 48 + (40 + 48 + 48)));
  }
}

}  // namespace recompute_test
