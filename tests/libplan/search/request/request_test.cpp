// What make_plan() refuses, and why nothing fits: whole messages.
#include "libplan/answer/make_plan.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/request");

namespace pp::plan::request_test {
namespace {

using test::make_cluster;
using test::make_profile;

Profile six_layers() {
  return make_profile({std::vector<test::LayerRow>(6, {1, 2, 1000, 100, 100, 0, 0}), {}, {2, 4}});
}

/// The message of the usage error for a changed request; four devices.
template <class Change>
std::string refusal(Change change, const Cluster& cluster = make_cluster(4),
                    const Profile& profile = six_layers()) {
  PlanRequest request;
  request.mini_batch = 8;
  change(request);
  try {
    make_plan(profile, cluster, request);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("counts out of range") {
  CHECK(refusal([](PlanRequest& r) { r.stages = 9; }) == "stages = 9 exceeds the number of layers, 6");
  CHECK(refusal([](PlanRequest& r) { r.stages = 5; }) == "stages = 5 exceeds the number of devices, 4");
  CHECK(refusal([](PlanRequest& r) { r.stages = 0; }) == "stages = 0; give at least 1");
  CHECK(refusal([](PlanRequest& r) { r.stages = 3, r.max_stages = 2; }) ==
        "stages = 3 exceeds the number of max_stages, 2");
  CHECK(refusal([](PlanRequest& r) { r.mini_batch = 0; }) ==
        "mini_batch = 0: the samples per optimizer update are not given; add --mini-batch N");
  CHECK(refusal([](PlanRequest& r) { r.micro_batches = 9; }) ==
        "micro_batches = 9 exceeds the mini-batch of 8 samples");
  CHECK(refusal([](PlanRequest& r) { r.micro_batch_size = 16; }) ==
        "micro_batch_size = 16 exceeds the mini-batch of 8 samples");
  CHECK(refusal([](PlanRequest& r) { r.micro_batches = 2, r.micro_batch_size = 4; }) ==
        "micro_batches and micro_batch_size are both given; leave one out");
  CHECK(refusal([](PlanRequest& r) { r.memory_limit = Bytes(0); }) ==
        "memory_limit = 0 bytes; give at least 1");
}

TEST_CASE("constraints that contradict each other or the machine") {
  CHECK(refusal([](PlanRequest& r) { r.cuts = {6}; }) == "cuts: boundary 6 is outside 1..5");
  CHECK(refusal([](PlanRequest& r) {
          r.cuts = {3, 3};
        }) == "cuts: boundary 3 does not come after 3; list them in ascending order");
  CHECK(refusal([](PlanRequest& r) {
          r.stages = 2, r.cuts = {1, 2};
        }) == "stages asks for 2 stages, cuts for 3; make them agree");
  CHECK(refusal([](PlanRequest& r) { r.replicas = {3, 2}; }) == "replicas need 5 devices, the cluster has 4");
  CHECK(refusal([](PlanRequest& r) {
          r.replicas = {3, 1}, r.micro_batches = 2;
        }) == "replicas = 3 exceeds the number of micro-batches, 2; replicas beyond it would be idle");
  CHECK(refusal([](PlanRequest& r) {
          r.schedule = "fastest";
        }).starts_with("schedule: unknown name \"fastest\"; use one of naive, data-parallel, gpipe, "));
  CHECK(refusal([](PlanRequest& r) { r.schedule = "gpipe", r.weight_policy = WeightPolicy::stash; }) ==
        "weight_policy = stash does not go with schedule gpipe; use flush");
  CHECK(refusal([](PlanRequest& r) { r.schedule = "2bw", r.weight_policy = WeightPolicy::stash; }) ==
        "weight_policy = stash does not go with schedule 2bw; use two_buffered");
  CHECK(refusal([](PlanRequest& r) { r.schedule = "pipedream", r.micro_batches = 4; }) ==
        "schedule pipedream updates after every micro-batch: micro_batches must be 1; leave it out and set the "
        "mini-batch "
        "to the size of one micro-batch");
}

TEST_CASE("stages per worker are asked of schedules that have several, in a list of those that do") {
  const auto asked = [](const std::string& schedule) {
    return refusal([&](PlanRequest& r) { r.schedule = schedule, r.chunks_per_worker = 2; });
  };
  for (const std::string schedule : {"1f1b", "gpipe,zb-h1", "data-parallel"}) {
    CHECK(asked(schedule) ==
          "chunks = 2: schedule " + schedule + " runs 1 stage per worker; leave it out, or use interleaved");
  }
  for (const char* const schedule : {"interleaved", "zb-h1,interleaved", "1f1b,dualpipe-v", "auto"})
    CHECK(asked(schedule) == "accepted");
}

TEST_CASE("frames reach the next stage only, so no plan of partime has a reader further on") {
  // The last layer reads the first, too.
  const Profile profile = make_profile(
      {std::vector<test::LayerRow>(3, {1, 2, 1000, 100, 100, 0, 0}), {{0, 1}, {1, 2}, {0, 2}}, {1}});
  const auto asked = [&](int stages) {
    return refusal([&](PlanRequest& r) { r.mini_batch = 1, r.schedule = "partime", r.stages = stages; },
                   make_cluster(3), profile);
  };
  CHECK(asked(2) == "accepted");
  CHECK(asked(3) ==
        "schedule partime hands frames to the next stage only, and every plan that was found has a stage that "
        "reads from one further in front; use fewer stages, or leave the cuts open");
}

TEST_CASE("batches that the profile cannot price name those it can") {
  CHECK(refusal([](PlanRequest& r) { r.mini_batch = 9; }) ==
        "no profiled micro-batch size (2, 4) divides the mini-batch of 9 samples; use a mini-batch of 8 or 10, "
        "or give --micro-batches");
  CHECK(refusal([](PlanRequest& r) { r.mini_batch = 1; }) ==
        "no profiled micro-batch size (2, 4) divides the mini-batch of 1 samples; use a mini-batch of 2, or "
        "allow --extrapolate");
  CHECK(refusal([](PlanRequest& r) { r.micro_batch_size = 3; }) ==
        "micro_batch_size = 3 does not divide the mini-batch of 8 samples; use a mini-batch of 6, or "
        "--micro-batches for "
        "unequal sizes");
  CHECK(refusal([](PlanRequest& r) { r.micro_batches = 1; }) ==
        "layer a: micro-batch size 8 is outside the profiled 2..4; profile that size, choose another or allow "
        "--extrapolate");
}

TEST_CASE("another kind of device, and figures that look like another unit") {
  Cluster cuda = make_cluster(2);
  for (Device& device : cuda.devices) device.kind = DeviceKind::cuda;
  CHECK(refusal([](PlanRequest&) {}, cuda) ==
        "device 0 is cuda, the profile was taken on cpu; profile the model on that kind of device");
  CHECK(refusal([](PlanRequest&) {}, make_cluster(2, 0, 25)) ==
        "level flat: bandwidth 25 B/s is outside 1e6..1e13 bytes per second: another unit? Allow it with "
        "--force-units");
  const Profile in_ms = make_profile({{{1e6 * 3600, 0, 0, 0, 0, 0, 0}}, {}, {2, 4}});
  CHECK(refusal([](PlanRequest&) {}, make_cluster(2), in_ms).find("not seconds? Allow it with --force-units") !=
        std::string::npos);
}

TEST_CASE("layers that share weights are not separated") {
  Profile profile = six_layers();
  profile.model.inputs = {{"x", {{4}, DType::float32}}};
  for (Layer& layer : profile.model.layers) {
    layer.op = "linear";
    layer.attributes = {{"out_features", std::int64_t{4}}};
  }
  profile.model.layers[0].inputs = {"x"};
  profile.model.layers[4].weights_of = "b";
  profile.layers[4].parameters = Bytes(0);
  profile.model = resolve(profile.model).graph;
  CHECK(refusal([](PlanRequest& r) { r.cuts = {3}; }, make_cluster(4), profile) ==
        "cuts: boundary 3 separates layers b and e, which share weights; move it, or let stages hold copies of "
        "them "
        "with --tied copies");
  CHECK(refusal([](PlanRequest& r) { r.stages = 4, r.tied = TiedWeights::stage; }, make_cluster(4), profile) ==
        "stages = 4 exceeds 3: layers that share weights stay in one stage; plan fewer stages, or let stages "
        "hold copies of them with --tied copies");
  CHECK(refusal(
            [](PlanRequest& r) {
              r.stages = 4;
              r.schedule = "zb-h1";
            },
            make_cluster(4),
            profile) == "stages = 4 exceeds 3: layers that share weights stay in one stage; plan fewer stages");
  PlanRequest request;
  request.mini_batch = 8;
  request.stages = 3;
  const Plan plan = std::get<Plan>(make_plan(profile, make_cluster(4), request));
  CHECK(stages_text(plan) == "1|4|1");
  // A worker has two stages, however many workers take the micro-batches.
  profile.model.layers[4].weights_of.clear();
  profile.model.layers[5].weights_of = "a";
  profile.layers[5].parameters = Bytes(0);
  profile.model = resolve(profile.model).graph;
  CHECK(refusal([](PlanRequest& r) { r.schedule = "interleaved"; }, make_cluster(4), profile) ==
        "stages = 2 exceeds 1: layers that share weights stay in one stage; plan a schedule with 1 stage per "
        "worker");
}

TEST_CASE("where one step is long to simulate, the limit that is named fits but need not be the smallest") {
  // To the byte takes a search for each guess, and 65,536 micro-batches on four devices a second each.
  Profile profile = make_profile({std::vector<test::LayerRow>(6, {1, 2, 1000, 100, 100, 0, 0}), {}, {1}});
  profile.layers[2].parameters = Bytes(5000);
  PlanRequest request;
  request.mini_batch = 65'536;
  request.memory_limit = Bytes(14'999);
  const Infeasible none = std::get<Infeasible>(make_plan(profile, make_cluster(4), request));
  REQUIRE(none.smallest_limit.has_value());
  const std::string limit = std::to_string(none.smallest_limit->value);
  CHECK(none.reason.ends_with("more than the limit of 14999 bytes; fits with a limit of " + limit + " bytes"));
  request.schedule = "1f1b";
  request.memory_limit = none.smallest_limit;
  CHECK(std::holds_alternative<Plan>(make_plan(profile, make_cluster(4), request)));
}

TEST_CASE("a limit below one layer's weights names layer, bytes short and the smallest limit that works") {
  // Layer c: 2 * 5000 + state 5000 = 15000 bytes; the others 3000 each. Two devices: c and what fits beside it.
  Profile profile = six_layers();
  profile.layers[2].parameters = Bytes(5000);
  PlanRequest request;
  request.mini_batch = 8;
  request.memory_limit = Bytes(14'999);
  const auto result = make_plan(profile, make_cluster(6), request);
  const Infeasible& none = std::get<Infeasible>(result);
  CHECK(none.layers == std::vector<std::string>{"c"});
  CHECK(none.short_by == Bytes(1));
  REQUIRE(none.smallest_limit.has_value());
  CHECK(none.reason ==
        "does not fit: layer c alone needs 15000 bytes for its weights, gradients and optimizer state, 1 "
        "more than the limit of 14999 bytes; smallest feasible limit " +
            std::to_string(none.smallest_limit->value) + " bytes");
  // Stages of one layer each, micro-batches of 2. Layer c is the third of four at least: it holds 15000, in
  // flight at most 4 micro-batches of (100 saved + 100 input).
  CHECK(none.smallest_limit->value > 15'000);
  CHECK(none.remedy == "--memory-limit " + std::to_string(none.smallest_limit->value));
  request.memory_limit = none.smallest_limit;
  CHECK(std::holds_alternative<Plan>(make_plan(profile, make_cluster(6), request)));
}

TEST_CASE("what the devices do not have is no remedy: it says how much memory would do, reserve included") {
  Profile profile = six_layers();
  profile.layers[2].parameters = Bytes(5000);  // 15000 bytes of state, as above
  Cluster cluster = make_cluster(6);
  for (Device& device : cluster.devices) device.memory = Bytes(14'000);
  PlanRequest request;
  request.mini_batch = 8;
  request.reserve = 0.25;
  const auto result = make_plan(profile, cluster, request);
  const Infeasible& none = std::get<Infeasible>(result);
  CHECK(none.short_by == Bytes(15'000 - 10'500));
  const std::int64_t bytes = (none.smallest_limit->value * 4 + 2) / 3;  // three quarters of it are the limit
  CHECK(none.remedy == "devices with " + std::to_string(bytes) + " bytes of memory each");
  for (Device& device : cluster.devices) device.memory = Bytes(bytes);
  CHECK(std::holds_alternative<Plan>(make_plan(profile, cluster, request)));
  for (Device& device : cluster.devices) device.memory = Bytes(bytes - 2);
  CHECK(std::holds_alternative<Infeasible>(make_plan(profile, cluster, request)));
}

TEST_CASE("a stage that falls short names itself, its device and the devices that would do") {
  // Six layers of 3000 bytes with state; 100 bytes saved, 100 sent per sample pair. Two devices hold three
  // layers each.
  PlanRequest request;
  request.mini_batch = 8;
  request.memory_limit = Bytes(8000);
  const auto result = make_plan(six_layers(), make_cluster(2), request);
  const Infeasible& none = std::get<Infeasible>(result);
  // Best attempt 3|3, M = 4: stage 0 keeps 2 * 300: 9600; stage 1 300 + 100: 9400.
  CHECK(none.reason ==
        "does not fit: stage 0 of 2 (a..c) needs 9600 bytes on cpu:0 in the best attempt, 1600 more than "
        "the limit of 8000 bytes; smallest feasible limit 9600 bytes");
  CHECK(none.stage == 0);
  CHECK(none.device == DeviceId{0});
  CHECK(none.short_by == Bytes(1600));
  CHECK(none.smallest_limit == Bytes(9600));
  CHECK(none.remedy == "3 devices");  // 2|2|2: 6000 + 3*200
}

TEST_CASE("a smaller micro-batch or another schedule is offered before more memory") {
  const Profile profile =
      make_profile({std::vector<test::LayerRow>(2, {1, 2, 0, 0, 1000, 0, 0}), {}, {1, 2, 4}});
  PlanRequest request;
  request.mini_batch = 8;
  request.micro_batch_size = 4;
  request.memory_limit = Bytes(5000);
  // One device: 4 samples keep 2 * 4000 bytes, 2 keep 4000.
  auto result = make_plan(profile, make_cluster(1), request);
  CHECK(std::get<Infeasible>(result).remedy == "--micro-batch-size 2, or --recompute auto");
  request.micro_batch_size = 1;
  request.schedule = "gpipe";
  // All eight in flight: 8 * 2000. With 1f1b one stage keeps one micro-batch.
  result = make_plan(profile, make_cluster(1), request);
  CHECK(std::get<Infeasible>(result).remedy == "--schedule 1f1b, or --recompute auto");
}

}  // namespace pp::plan::request_test

TEST_SUITE_END();
