// Predicted beside measured bytes: what a profile and a plan say a worker will hold at most, against its meter
// in a run. Counts, not times, so they are compared closely.
#include <utility>
#include <variant>

#include "libplan/search/planner.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/model/families/families.h"
#include "librun/run.h"
#include "tests/librun/reference.h"
#include "tests/support/torch_test.h"

using namespace pp;

namespace {

struct SilentProfiling final : profile::Observer {
  void progress(std::string_view, double, Seconds) override {}
  void warning(std::string_view) override {}
};

/// Bytes are exact after one pass; the times need not be.
Profile measure(const ModelGraph& model, int size) {
  profile::prepare_process();
  SilentProfiling observer;
  return profile::profile_model(
      model,
      {.micro_batch_sizes = {size}, .precision = 0.5, .budget_per_size = Seconds(0.01), .max_samples = 5},
      observer);
}

struct Peak {
  double predicted, measured;
};

/// Of each worker, of a plan for `model` cut at `cuts`, four micro-batches of `size` samples a step.
std::vector<Peak> peaks(const ModelGraph& model, int size, std::vector<int> cuts,
                        const std::string& schedule = "1f1b") {
  const Profile profile = measure(model, size);
  const int stages = static_cast<int>(cuts.size()) + 1;
  const Cluster cluster = flat_cluster(stages, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-5), Bytes(0));
  plan::PlanRequest request;
  request.mini_batch = 4 * size;
  request.micro_batches = 4;
  request.schedule = schedule;
  request.stages = stages;
  request.cuts = std::move(cuts);
  request.replicas.assign(static_cast<std::size_t>(stages), 1);
  const plan::Plan plan = std::get<plan::Plan>(plan::make_plan(profile, cluster, request));

  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 8 * size;
  options.steps = 2;
  options.evaluate = false;
  test::SilentObserver observer;
  const run::RunReport report = run::run(plan, options, observer);
  std::vector<Peak> result;
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    result.push_back({static_cast<double>(plan.predicted.workers[w].memory.peak.value),
                      static_cast<double>(report.workers[w].peak.value)});
  }
  return result;
}

void check_close(const std::vector<Peak>& peaks) {
  for (const Peak& peak : peaks) {
    CAPTURE(peak.predicted);
    CAPTURE(peak.measured);
    CHECK(peak.measured == doctest::Approx(peak.predicted).epsilon(0.05));
  }
}

}  // namespace

TEST_SUITE("librun/memory") {
  TEST_CASE("one stage: what the layers save and the largest workspace are the measured peak") {
    for (const char* family : {"lenet5", "mlp", "resnet18:image=32,width=8", "squeezenet1_1:image=32",
                               "transformer:layers=2,width=64", "densenet121:image=32,growth=4"}) {
      CAPTURE(family);
      check_close(peaks(model::build_family(family), 4, {}));
    }
  }

  TEST_CASE("two stages: what crosses the boundary counts at both ends, wherever the cut is") {
    const ModelGraph lenet = model::build_family("lenet5");
    for (const int cut : {3, 6, 7}) {  // behind pool1, pool2 and flatten
      CAPTURE(cut);
      check_close(peaks(lenet, 16, {cut}));
    }
    const ModelGraph residual = model::build_family("resnet18:image=32,width=8");
    for (const int cut : {11, 27, 43}) {
      CAPTURE(cut);
      check_close(peaks(residual, 8, {cut}));
    }
    check_close(peaks(model::build_family("transformer:layers=2,width=64"), 4, {13}));  // between the blocks
  }

  TEST_CASE("three stages, and all micro-batches in flight") {
    check_close(peaks(model::build_family("lenet5"), 16, {3, 6}));
    check_close(peaks(model::build_family("lenet5"), 16, {3}, "gpipe"));
  }

  TEST_CASE("what a stage receives and its layers do not keep is there in forward only") {
    check_close(peaks(model::build_family("lenet5"), 16, {1}, "gpipe"));  // relu1 keeps its result
    check_close(peaks(model::build_family("lenet5"), 16, {4}, "gpipe"));  // relu2
  }

  TEST_CASE("a split backward: what waits for the weight gradients") {
    check_close(peaks(model::build_family("lenet5"), 16, {3, 6}, "zb-h1"));
    check_close(peaks(model::build_family("resnet18:image=32,width=8"), 8, {27}, "zb-h1"));
    check_close(peaks(model::build_family("transformer:layers=2,width=64"), 4, {13}, "zb-h1"));
  }
}
