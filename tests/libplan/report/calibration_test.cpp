#include "libplan/report/calibration.h"
#include "libplan/answer/make_plan.h"
#include "libplan/price/corrected.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "libprofile/core/hash.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"
#include "tests/support/schema.h"

TEST_SUITE_BEGIN("libplan/report/calibration");

namespace pp::plan::calibration_test {
namespace {

using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-12); }

/// Six layers of 4 ms forward and 1 ms backward, with an update of 1 s per 1 MB.
Profile chain() {
  Profile profile = make_profile({std::vector<test::LayerRow>(6, {4, 1, 1000, 0, 0, 0, 0}), {}, {1, 2}});
  const TimeStat second{Seconds(6e-3), Seconds(5e-3), Seconds(8e-3), 10};
  profile.optimizers.push_back({"sgd", 1, second, Bytes(6000)});
  return profile;
}

PlanRequest two_stages() {
  PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = "1f1b";
  request.stages = 2;
  request.replicas = {1, 1};
  request.window = WindowRule::win;
  return request;
}

Plan plan_of(const Profile& profile) {
  return std::get<Plan>(make_plan(profile, make_cluster(2), two_stages()));
}

/// A run of the plan of `profile` that took what `change` leaves of the promise.
MeasuredRun run_of(const Profile& profile, const std::function<Seconds(OpKind, int, Seconds)>& change) {
  MeasuredRun run{"report", plan_of(profile), {}};
  for (int stage = 0; stage < 2; ++stage) {
    for (const OpKind kind : {OpKind::forward, OpKind::backward, OpKind::update}) {
      const Seconds promised = promised_time(run.plan, run.plan.predicted, kind, StageId{stage});
      run.operations.push_back({kind, StageId{stage}, change(kind, stage, promised)});
    }
  }
  return run;
}

/// Forwards of stage 0 took `factor` times as long as promised.
MeasuredRun slow_forwards(const Profile& profile, double factor) {
  return run_of(profile, [&](OpKind kind, int stage, Seconds promised) {
    return stage == 0 && kind == OpKind::forward ? factor * promised : promised;
  });
}

Calibration calibration_by(const Profile& profile, const std::vector<MeasuredRun>& runs) {
  std::vector<RunFactors> factors;
  for (const MeasuredRun& run : runs) factors.push_back(factors_of(run, profile));
  return calibration_of(profile, factors);
}
Profile calibrated_by(const Profile& profile, const std::vector<MeasuredRun>& runs) {
  return corrected(profile, calibration_by(profile, runs));
}

/// All that device `device` did took `factor` times as long as promised.
MeasuredRun slow_device(const Profile& profile, int device, double factor) {
  return run_of(profile, [&](OpKind, int stage, Seconds promised) {
    return stage == device ? factor * promised : promised;
  });
}

double forward_ms(const Profile& profile, std::size_t layer, std::size_t point = 0) {
  return 1e3 * profile.layers[layer].points[point].forward.median.count();
}
double backward_ms(const Profile& profile, std::size_t layer) {
  return 1e3 * profile.layers[layer].points[0].backward.median.count();
}

std::string refusal(const MeasuredRun& run, const Profile& profile) {
  return pp::test::error_of([&] { factors_of(run, profile); }, ErrorKind::data);
}

}  // namespace

TEST_CASE("a run that measured what was promised changes nothing, to the byte") {
  const Profile profile = chain();
  const MeasuredRun run = slow_forwards(profile, 1);
  CHECK(dump_json(to_json(calibrated_by(profile, {run, run}))) == dump_json(to_json(profile)));
  CHECK((calibration_by(profile, {run}) == Calibration{{"report"}, 1, 1}));
}

TEST_CASE("times of first micro-batches and of parts are corrected with the others") {
  Profile profile = chain();
  profile.layers[0].points[0].in_part = without_spread(Seconds(1), Seconds(2), Seconds(1), Seconds(1));
  profile.layers[0].points[0].alone = without_spread(Seconds(1.5), Seconds(2), Seconds(1), Seconds(1));
  profile.layers[0].points[0].first = without_spread(Seconds(3), Seconds(5), Seconds(1), Seconds(1));
  const Profile slow = calibrated_by(profile, {slow_forwards(profile, 2)});
  CHECK(slow.layers[0].points[0].in_part->forward.median.count() == doctest::Approx(2));
  CHECK(slow.layers[0].points[0].in_part->backward.median.count() == doctest::Approx(2));
  CHECK(slow.layers[0].points[0].alone->forward.median.count() == doctest::Approx(3));
  CHECK(slow.layers[0].points[0].first->forward.median.count() == doctest::Approx(6));
}

TEST_CASE("forwards of stage 0 that took twice as long double those layers' forwards, and layers move away") {
  const Profile profile = chain();
  REQUIRE(stages_text(plan_of(profile)) == "3|3");
  const Profile slow = calibrated_by(profile, {slow_forwards(profile, 2)});
  for (const std::size_t layer : {0U, 1U, 2U}) {
    CHECK(forward_ms(slow, layer) == exactly(8));
    CHECK(forward_ms(slow, layer, 1) == exactly(16));  // of two samples
    CHECK(backward_ms(slow, layer) == 1);
    CHECK(forward_ms(slow, layer + 3) == 4);
  }
  // Three layers of 8 + 1 ms and three of 4 + 1: 27 and 15 ms; with one less in front 18 and 24.
  CHECK(stages_text(plan_of(slow)) == "2|4");
  // The plan of the calibrated profile, run as it promised, says of the profile what the first run said.
  const MeasuredRun again = slow_forwards(slow, 1);
  const Profile twice = calibrated_by(profile, {again});
  CHECK(forward_ms(twice, 0) == exactly(8));
  CHECK(forward_ms(twice, 1) == exactly(8));
  CHECK(forward_ms(twice, 2) == exactly(5));  // it stood with three of 4 ms: (8 + 12)/16
}

TEST_CASE("of several runs the median counts, of two the mean") {
  const Profile profile = chain();
  const auto forward = [&](const std::vector<double>& factors) {
    std::vector<MeasuredRun> runs;
    for (const double factor : factors) runs.push_back(slow_forwards(profile, factor));
    return forward_ms(calibrated_by(profile, runs), 0);
  };
  CHECK(forward({2, 3}) == exactly(10));
  CHECK(forward({2, 5, 3}) == exactly(12));
}

TEST_CASE("a device on which all operations take twice as long is slow, and its layers are as they were") {
  const Profile profile = chain();
  const Calibration found = calibration_by(profile, {slow_device(profile, 0, 2)});
  CHECK((found.devices == std::vector<MeasuredSpeed>{{DeviceId{0}, "", 0.5}}));
  CHECK(found.layers.empty());
  CHECK(found.updates.empty());
  CHECK(found.largest == exactly(1));
  CHECK(dump_json(to_json(corrected(profile, found))) == dump_json(to_json(profile)));
  // Six layers of 5 ms: two on the device of half the speed and four on the other take 20 ms each.
  const Cluster machine = corrected(make_cluster(2), found);
  CHECK(machine.devices[0].speed == exactly(0.5));
  const Plan again = std::get<Plan>(make_plan(profile, machine, two_stages()));
  const std::size_t stage = again.workers[0].device == DeviceId{0} ? 0 : 1;
  CHECK(again.stages[stage].layers.size() == 2);
  // A run of that plan that takes what it promises leaves the device at half its speed.
  MeasuredRun second{"second", again, {}};
  for (const int s : {0, 1}) {
    for (const OpKind kind : {OpKind::forward, OpKind::backward})
      second.operations.push_back({kind, StageId{s}, promised_time(again, again.predicted, kind, StageId{s})});
  }
  CHECK(calibration_by(profile, {second}).devices == found.devices);
  // When it has its time back, it has its speed back.
  for (MeasuredRun::Operation& operation : second.operations)
    if (index(operation.stage) == stage) operation.median /= 2;
  CHECK(calibration_by(profile, {second}).devices.empty());
}

TEST_CASE("the plan has the factors, and says them in its document") {
  const Profile profile = chain();
  Plan plan = plan_of(profile);
  plan.calibration = calibration_by(profile, {run_of(profile, [](OpKind kind, int stage, Seconds promised) {
                                      return (stage == 1 ? 3.0 : kind == OpKind::forward ? 1.5 : 1) * promised;
                                    })});
  CHECK(plan.calibration->layers.size() == 3);
  CHECK(plan.calibration->devices.size() == 1);
  const Json json = to_json(plan);
  CHECK(plan_from_json(json).calibration == plan.calibration);
  CHECK(pp::test::schema_error("plan", json) == "");
}

TEST_CASE("what promises are usually off by is the layers', also when a device alone has it") {
  const Profile profile = chain();
  const Calibration found = calibration_by(profile, {slow_device(profile, 0, 1.3)});
  CHECK(found.devices.empty());
  REQUIRE(found.layers.size() == 3);
  CHECK(found.layers[0].layer == profile.layers[0].name);
  CHECK(found.layers[0].backward == exactly(1.3));
}

TEST_CASE("a device with next to no work says nothing of speeds, nor the other beside it") {
  // Five layers of 4 + 1 ms on one device, one of a hundredth of that on the other: 0.2 % of all work. The
  // large stage took five times as long, the small one as promised.
  Profile profile = chain();
  for (LayerPoint& point : profile.layers[5].points) {
    for (TimeStat* time : {&point.forward, &point.backward}) *time = {time->median / 100, {}, {}, 0};
  }
  PlanRequest request = two_stages();
  request.cuts = {5};
  MeasuredRun run{"report", std::get<Plan>(make_plan(profile, make_cluster(2), request)), {}};
  for (const int stage : {0, 1}) {
    for (const OpKind kind : {OpKind::forward, OpKind::backward}) {
      const Seconds promised = promised_time(run.plan, run.plan.predicted, kind, StageId{stage});
      run.operations.push_back({kind, StageId{stage}, (stage == 0 ? 5 : 1) * promised});
    }
  }
  const RunFactors factors = factors_of(run, profile);
  REQUIRE(barely_used(factors).size() == 1);
  CHECK(barely_used(factors)[0]->stage.layers.front() == profile.layers[5].name);
  const Calibration found = calibration_by(profile, {run});
  CHECK(found.devices.empty());
  REQUIRE(found.layers.size() == 5);
  CHECK(found.layers[0].forward == exactly(5));
  CHECK(barely_used(factors_of(slow_device(chain(), 0, 2), chain())).empty());
}

TEST_CASE("replicas tell a slow device from slow layers") {
  // Layers that take 1.2 times as long on two devices, of which the second has 5/6 of its speed.
  const Profile profile = chain();
  PlanRequest request = two_stages();
  request.stages = 1;
  request.replicas = {2};
  MeasuredRun run{"report", std::get<Plan>(make_plan(profile, make_cluster(2), request)), {}};
  REQUIRE(run.plan.stages[0].workers.size() == 2);
  for (const OpKind kind : {OpKind::forward, OpKind::backward}) {
    const Seconds promised = promised_time(run.plan, run.plan.predicted, kind, StageId{0});
    run.operations.push_back({kind, StageId{0}, 1.2 * promised, {1.2 * promised, 1.44 * promised}});
  }
  const Calibration found = calibration_by(profile, {run});
  REQUIRE(found.devices.size() == 1);
  CHECK(found.devices[0].device == run.plan.workers[index(run.plan.stages[0].workers[1])].device);
  CHECK(found.devices[0].speed == exactly(1 / 1.2));
  REQUIRE(found.layers.size() == 6);
  CHECK(found.layers[5].forward == exactly(1.2));
}

TEST_CASE("what every operation takes beside its layers is taken off both sides") {
  // 0.5 + 3 x 4 ms promised, 24.5 measured: the layers took twice as long.
  Profile profile = chain();
  const TimeStat half{Seconds(0.5e-3), Seconds(0.5e-3), Seconds(0.5e-3), 10};
  profile.operation_overhead = OperationOverhead{half, half};
  const MeasuredRun run = run_of(profile, [](OpKind kind, int stage, Seconds promised) {
    return stage == 0 && kind == OpKind::forward ? Seconds(24.5e-3) : promised;
  });
  CHECK(forward_ms(calibrated_by(profile, {run}), 0) == exactly(8));
}

TEST_CASE("percentiles and the optimizer's update are scaled with the medians") {
  Profile profile = chain();
  TimeStat& forward = profile.layers[0].points[0].forward;
  forward = {Seconds(4e-3), Seconds(3e-3), Seconds(6e-3), 10};
  profile.optimizers[0].new_version = UpdatePoint{Bytes(6000), {Seconds(12e-3), Seconds(0), Seconds(0), 10}};
  // Updates of 3 ms each took 3 and 6 ms: 9 instead of 6 together.
  const MeasuredRun run = run_of(profile, [](OpKind kind, int stage, Seconds promised) {
    return kind == OpKind::backward || stage == 0 ? promised : 2 * promised;
  });
  const Profile slow = calibrated_by(profile, {run});
  CHECK(slow.layers[0].points[0].forward == forward);
  CHECK(forward_ms(slow, 3) == exactly(8));
  CHECK(slow.optimizers[0].update.median.count() == exactly(9e-3));
  CHECK(slow.optimizers[0].update.high.count() == exactly(12e-3));
  CHECK(slow.optimizers[0].new_version->update.median.count() == exactly(18e-3));
  // Of another optimizer than the one that ran nothing is known.
  profile.optimizers.push_back({"adamw", 2, profile.optimizers[0].update, Bytes(6000)});
  CHECK(calibrated_by(profile, {run}).optimizers[1].update == profile.optimizers[1].update);
  CHECK(calibrated_by(profile, {run}).optimizers[0].update.median.count() == exactly(9e-3));
}

TEST_CASE("halves of the backward stand in for the whole, and the whole for the halves") {
  Profile profile = chain();
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) {
      point.input_gradient = TimeStat{point.backward.median * 0.6, {}, {}, 0};
      point.weight_gradient = TimeStat{point.backward.median * 0.4, {}, {}, 0};
    }
  }
  const StageFactors whole = factors_of(run_of(profile,
                                               [](OpKind kind, int, Seconds promised) {
                                                 return kind == OpKind::backward ? 3 * promised : promised;
                                               }),
                                        profile)
                                 .stages[0];
  CHECK(*whole.backward == exactly(3));
  CHECK(*whole.input_gradient == exactly(3));
  CHECK(*whole.weight_gradient == exactly(3));
  // 1.8 ms of I took 3.6, 1.2 ms of W took 1.2: 4.8 instead of 3.
  MeasuredRun split = slow_forwards(profile, 1);
  std::erase_if(split.operations, [](const auto& operation) { return operation.kind == OpKind::backward; });
  split.operations.push_back({OpKind::input_gradient, StageId{0}, Seconds(3.6e-3)});
  split.operations.push_back({OpKind::weight_gradient, StageId{0}, Seconds(1.2e-3)});
  const StageFactors halves = factors_of(split, profile).stages[0];
  CHECK(*halves.input_gradient == exactly(2));
  CHECK(*halves.weight_gradient == exactly(1));
  CHECK(*halves.backward == exactly(1.6));
}

TEST_CASE("runs that say nothing about the profile are refused") {
  const Profile profile = chain();
  const MeasuredRun run = slow_forwards(profile, 1);
  MeasuredRun other = run;
  other.plan.model.name = "other";
  CHECK(refusal(other, profile) == "the run is of model \"other\" (" + model_hash(other.plan.model) +
                                       "), the profile of \"example\" (" + profile.model_hash +
                                       "); run a plan of this profile");
  other = run;
  other.plan.training.dtype = DType::bfloat16;
  CHECK(refusal(other, profile) ==
        "the run computed in bfloat16, the profile is of float32; run a plan of this profile");
  other = run;
  other.plan.training.memory_format = MemoryFormat::channels_last;
  CHECK(refusal(other, profile) ==
        "the run had tensors channels_last, the profile is of contiguous; run a plan of this profile");
  other = run;
  other.plan.training.mini_batch = 16;
  CHECK(refusal(other, profile) ==
        "the run had micro-batches of 4 samples, the profile has sizes 1, 2; run a plan with one of them, or "
        "profile that size");
  other = run;
  other.plan.devices[0].kind = DeviceKind::cuda;
  CHECK(refusal(other, profile) ==
        "the run used devices of kind cuda, the profile is of cpu; run a plan of this profile");
  other = run;
  other.operations.clear();
  CHECK(refusal(other, profile) == "/op_times: has no measured forward; calibrate with a run of some steps");
}

TEST_CASE("of a report only plan and operations are read, and what is wrong with these is named") {
  const MeasuredRun run = slow_forwards(chain(), 1);
  Json json{{"format", "pp.report"}, {"version", 1}, {"plan", to_json(run.plan)}, {"seed", "whatever"}};
  json["op_times"] = {{{"kind", "F"}, {"stage", 1}, {"count", 8}, {"predicted_s", 0.01}, {"median_s", 0.0125}}};
  const MeasuredRun read = parse_measured_run(dump_json(json));
  CHECK(read.hash == content_hash(dump_json_compact(json)));
  CHECK(read.plan == run.plan);
  REQUIRE(read.operations.size() == 1);
  CHECK(read.operations[0].kind == OpKind::forward);
  CHECK(read.operations[0].stage == StageId{1});
  CHECK(read.operations[0].median == Seconds(0.0125));
  const auto refused = [&](const std::function<void(Json&)>& change) -> std::string {
    Json changed = json;
    change(changed);
    try {
      parse_measured_run(dump_json(changed));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused([](Json& j) { j["format"] = "pp.plan"; }) ==
        "/format: is \"pp.plan\"; a run's report is \"pp.report\"");
  CHECK(refused([](Json& j) { j["version"] = 2; }) == "/version: is 2; this program reads version 1");
  CHECK(refused([](Json& j) { j["op_times"][0]["stage"] = 2; }).starts_with("/op_times/0/stage: "));
  CHECK(refused([](Json& j) {
          j["op_times"][0]["replica_medians_s"] = {1, 2};
        }) == "/op_times/0/replica_medians_s: must be 1 as the stage has workers, found 2");
  CHECK(refused([](Json& j) { j["plan"]["stages"][0]["workers"] = {7}; }) ==
        "/plan: /stages/0/workers: 7 is not in /workers");
}

}  // namespace pp::plan::calibration_test
