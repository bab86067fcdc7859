// Harmony: weights, optimizer state and stashed inputs live on the host; tasks load their pack, run all their
// micro-batches and update it.
#include <nlohmann/json.hpp>
#include <variant>

#include "libplan/search/planner.h"
#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/silent_profiling.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace harmony_test {

using namespace pp;

namespace {

ModelGraph transformer() {
  return model::build_family(
      "transformer:layers=2,width=32,heads=4,vocabulary=64,sequence=16,dropout=0.1,tied=0");
}

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(5);  // three an epoch
  options.evaluate = false;
  return options;
}

/// `stages` stages of about as many layers on `workers` workers.
PlanSpec swapped(ModelGraph model, const std::string& schedule, int workers, int chunks) {
  const int layers = static_cast<int>(model.layers.size()), stages = workers * chunks;
  PlanSpec spec{.model = std::move(model), .schedule = schedule, .chunks = chunks};
  for (int s = 1; s < stages; ++s) spec.cuts.push_back(s * layers / stages);
  return spec;
}

Profile measured(const ModelGraph& model, int size) {
  profile::prepare_process();
  test::SilentProfiling observer;
  return profile::profile_model(
      model, {.micro_batch_sizes = {size}, .precision = 0.5, .budget_per_size = Seconds(0.01)}, observer);
}

/// Eight samples a step, two at a time.
plan::Plan planned(const Profile& profile, const std::string& schedule, int devices, Bytes limit) {
  const Cluster cluster = flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(1e10), Seconds(1e-5), Bytes(0));
  plan::PlanRequest request;
  request.mini_batch = 8;
  request.micro_batches = 4;
  request.schedule = schedule;
  request.stages = devices;
  if (limit.value > 0) {
    request.memory_limit = limit;
    request.swap_bandwidth = BytesPerSecond(5e9);
  }
  return std::get<plan::Plan>(plan::find_plan(profile, cluster, request));
}

std::string refusal(const plan::Plan& plan, const run::RunOptions& options) {
  return pp::test::error_of([&] { run::check(plan, options); });
}

}  // namespace

TEST_SUITE("librun/harmony") {
  // Without either the table of promises trains both schedules.
  TEST_CASE("loading ahead and packs of several stages change no bit of harmony-pp, harmony-dp to rounding") {
    const ModelGraph model = transformer();
    const test::Trained expected = test::train_alone(make_plan({.model = model}), short_run());
    for (const auto& [workers, chunks] : {std::pair{1, 3}, {2, 1}, {2, 3}, {3, 2}}) {
      CAPTURE(workers);
      CAPTURE(chunks);
      PlanSpec spec = swapped(model, "harmony-pp", workers, chunks);
      spec.prefetch = true;
      CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), short_run()).tensors) ==
            "");
    }
    PlanSpec packs = swapped(model, "harmony-pp", 2, 3);
    packs.forward_packs = {1, 3, 2};
    packs.backward_packs = {2, 3, 1};
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(packs), short_run()).tensors) ==
          "");
    PlanSpec both = swapped(model, "harmony-dp", 2, 2);
    both.prefetch = true;
    CHECK(test::largest_difference(expected.tensors, test::run_plan(make_plan(both), short_run()).tensors) <
          1e-6);
  }

  TEST_CASE("row 21: under a third of what the plain run holds, and what is swapped in") {
    const ModelGraph model = model::build_family(
        "transformer:layers=4,width=64,heads=4,vocabulary=128,sequence=32,dropout=0.1,tied=0");
    const Profile profile = measured(model, 2);
    run::RunOptions options = short_run();
    const test::Run plain = test::run_plan(planned(profile, "gpipe", 1, Bytes(0)), options);
    const Bytes cap(plain.report.workers[0].peak.value / 3);
    for (const auto& [schedule, devices] : {std::pair{"harmony-pp", 1}, {"harmony-pp", 2}, {"harmony-dp", 2}}) {
      CAPTURE(schedule);
      CAPTURE(devices);
      const plan::Plan plan = planned(profile, schedule, devices, cap);
      const test::Run found = test::run_plan(plan, options);
      if (std::string(schedule) == "harmony-pp")
        CHECK(test::first_difference(plain.tensors, found.tensors) == "");
      CHECK(test::largest_difference(plain.tensors, found.tensors) < 1e-6);
      for (const run::WorkerReport& worker : found.report.workers) {
        CHECK(worker.peak <= cap);
        CHECK(worker.peak.value > 0);
      }
      // With S packs of one stage: of harmony-pp every pack comes twice, forward and backward, but the last
      // one, whose forward is fused, and one that is loaded still. On one worker that is none: 2 S - 1. Every
      // pack goes back once. Of harmony-dp each worker does so by itself.
      const auto stages = static_cast<std::int64_t>(plan.stages.size());
      std::int64_t in = 0, out = 0;
      for (const run::WorkerReport& worker : found.report.workers) {
        in += worker.swaps_in->count;
        out += worker.swaps_out->count;
      }
      const std::int64_t replicas = std::string(schedule) == "harmony-dp" ? devices : 1;
      CHECK(out == 5 * replicas * stages);
      if (devices == 1 || replicas > 1) CHECK(in == 5 * replicas * (2 * stages - 1));
    }
  }

  TEST_CASE("row 21: a pack that the next task needs is not loaded again") {
    // Four stages on two workers, forwards 0, 1, 2 on workers 0, 1, 0; the fused 3 and the backwards 2, 1, 0 on
    // workers 1, 0, 1, 0: 2 stays on worker 0 and 3 comes once, 0 and 1 twice. So worker 0 loads 0, 2, 0 and
    // worker 1 loads 1, 3, 1; each writes two stages back.
    const test::Run found = test::run_plan(make_plan(swapped(transformer(), "harmony-pp", 2, 2)), short_run());
    for (const run::WorkerReport& worker : found.report.workers) {
      CHECK(worker.swaps_in->count == 5 * 3);
      CHECK(worker.swaps_out->count == 5 * 2);
    }
    // Bytes: every write takes weights and momentum of a stage, all of them together the model's twice.
    Bytes written;
    for (const run::WorkerReport& worker : found.report.workers) written += worker.swaps_out->bytes;
    std::int64_t model = 0;
    for (const auto& [name, tensor] : found.tensors) model += static_cast<std::int64_t>(tensor.nbytes());
    CHECK(written.value >= 5 * 2 * model);
    CHECK(written.value < 5 * 2 * model * 11 / 10);  // places are multiples of 64 bytes
    const auto compared = [&](const std::string& name) {
      return std::ranges::find(found.report.comparisons, name, &run::Comparison::name)->ratio;
    };
    CHECK(compared("worker_0_swap_in") == 1);
    CHECK(compared("worker_1_swap_out") == 1);
    const run::RunReport again = run::report_from_json(to_json(found.report));
    CHECK((again.workers == found.report.workers));
  }

  TEST_CASE("it writes checkpoints and goes on from those of other plans") {
    const ModelGraph model = transformer();
    const plan::Plan plain = make_plan({.model = model}), ours = make_plan(swapped(model, "harmony-pp", 2, 2)),
                     others = make_plan(swapped(model, "harmony-dp", 1, 3));
    const test::Run expected = test::run_plan(plain, short_run());
    const test::Run found = test::run_parts({{plain, 2}, {ours, 3}, {others, 4}, {plain, 5}}, short_run());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
  }

  TEST_CASE("a device that cannot hold a pack is refused with the stage, its bytes, the limit and what helps") {
    // A linear layer of 5x6 + 6 floats: 144 bytes. Updated with momentum a stage holds its weights three times,
    // 432 bytes.
    PlanSpec spec{.model = test::mlp(1), .cuts = {2}, .schedule = "harmony-pp", .chunks = 2};
    spec.memory = Bytes(431);
    CHECK(
        refusal(make_plan(spec), short_run()) ==
        "worker 0: stage 0: at L0 its device holds 432 B (weights 144 B of stage 0), the limit is 431 B; plan "
        "with more --chunks or smaller micro-batches, or raise --memory-limit");
    spec.memory = Bytes(0);
    run::RunOptions options = short_run();
    options.memory_limit = Bytes(430);
    CHECK(refusal(make_plan(spec), options).find("the limit is 430 B") != std::string::npos);
    options.memory_limit = Bytes(1 << 20);
    CHECK(refusal(make_plan(spec), options) == "");
  }
}

}  // namespace harmony_test
