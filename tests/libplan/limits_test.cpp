// Every integer and number of a profile, a cluster, a plan and a request at the largest value that is accepted:
// a plan, or a refusal with words. Under the undefined behaviour sanitizer it also says that nothing overflows.
#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libplan/simulate/simulate.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/limits");

namespace pp::plan {
namespace {

TimeStat stat(double seconds) { return {Seconds(seconds), Seconds(seconds), Seconds(seconds), 3}; }

/// A chain of four layers with everything that a profile may have.
Profile full_profile() {
  const test::LayerRow row{1, 2, 1000, 2000, 3000, 500, 100};
  Profile profile = test::make_profile({{row, row, row, row}, {}, {1, 2, 4}});
  for (LayerProfile& layer : profile.layers) {
    layer.parameter_count = 250;
    layer.buffers = Bytes(10);
    for (LayerPoint& point : layer.points) {
      const double times = static_cast<double>(point.micro_batch_size);
      point.forward = stat(1e-3 * times);
      point.backward = stat(2e-3 * times);
      point.input_gradient = point.weight_gradient = stat(1e-3 * times);
      const LayerTimes all = without_spread(Seconds(1e-3), Seconds(2e-3), Seconds(1e-3), Seconds(1e-3));
      point.first = point.in_part = point.alone = all;
      point.waiting = Bytes(700);
    }
  }
  profile.loss = profile.layers.front();
  profile.loss->name = "loss";
  profile.device.devices_busy = 2;
  profile.device.memory = Bytes(1'000'000'000);
  profile.whole_model.push_back({1, stat(4e-3), stat(8e-3), Bytes(5000)});
  OptimizerProfile sgd;
  sgd.name = "sgd";
  sgd.state_bytes_per_parameter_byte = 1;
  sgd.update = stat(1e-4);
  sgd.parameters = Bytes(4000);
  sgd.parts = {{Bytes(1000), stat(3e-5)}, {Bytes(2000), stat(5e-5)}};
  sgd.new_version = UpdatePoint{Bytes(1000), stat(4e-5)};
  profile.optimizers = {sgd};
  profile.operation_overhead = OperationOverhead{stat(1e-6), stat(1e-6)};
  return profile;
}

Cluster full_cluster() {
  const std::vector<LevelSpec> levels{{2, BytesPerSecond(1e10)}, {2, BytesPerSecond(1e9)}};
  Cluster cluster = nested_cluster(levels, DeviceKind::cpu, Seconds(1e-6), Bytes(1'000'000'000));
  for (Level& level : cluster.levels) {
    level.message_cost = Seconds(1e-6);
    level.overlap = 0.5;
    level.all_reduce =
        MeasuredAllReduce{BytesPerSecond(1e9), Seconds(1e-5), 0.1, {}, 0.5, Bytes(1000), BytesPerSecond(5e8)};
  }
  return cluster;
}

std::vector<PlanRequest> requests() {
  PlanRequest request;
  request.mini_batch = 8;
  request.force_units = request.extrapolate = true;
  std::vector<PlanRequest> all(4, request);
  all[0].schedule = "gpipe,1f1b";
  all[1].schedule = "1f1b,zb-h1";
  all[1].memory_limit = Bytes(60'000);
  all[1].recompute = RecomputeMode::automatic;
  all[2].schedule = "pipedream";
  all[2].mini_batch = 4;
  all[3].schedule = "interleaved";
  all[3].micro_batch_size = 1;
  return all;
}

/// Whether there is a plan, whole and readable, or a refusal with words; `what` names the case.
void check_planned(const std::string& what, const Profile& profile, const Cluster& cluster,
                   const PlanRequest& request) {
  CAPTURE(what);
  CAPTURE(request.schedule);
  try {
    const auto result = make_plan(profile, cluster, request);
    if (const auto* plan = std::get_if<Plan>(&result)) {
      const Plan again = parse_plan(dump_json(to_json(*plan)));
      check_plan(again);
      CHECK(simulate(simulation_input(again)).makespan >= Seconds(0));
    }
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.kind() != ErrorKind::internal);
  }
}

/// Values that some reader has for its limit, the largest first; the last are for shares.
constexpr int kMost = std::numeric_limits<int>::max();

const std::vector<Json> kLimits{1e30, kMostInteger, std::numeric_limits<int>::max(), 4'294'967'297, 1e6, 1000,
                                1,    0.999999999};

/// Calls `visit(pointer, document)` for every number of the document, at the largest of kLimits that `read`
/// accepts. What must be equal elsewhere (a size of micro-batches, an id) has no such value.
template <class Read, class Visit>
int for_each_limit(const Json& document, Read read, Visit visit) {
  int count = 0;
  const Json numbers = document.flatten();
  for (const auto& [pointer, value] : numbers.items()) {
    if (!value.is_number()) continue;
    for (const Json& limit : kLimits) {
      if (value.is_number_integer() && !limit.is_number_integer()) continue;
      Json changed = document;
      changed[Json::json_pointer(pointer)] = limit;
      try {
        read(changed);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::data);
        continue;
      }
      visit(pointer + " = " + limit.dump(), changed);
      ++count;
      break;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("numbers of a profile at their limits") {
  const Cluster cluster = full_cluster();
  const std::vector<PlanRequest> all = requests();
  std::size_t next = 0;  // two requests each, in turn
  const int count = for_each_limit(
      to_json(full_profile()), profile_from_json, [&](const std::string& what, const Json& json) {
        if (what.starts_with("/layers/0/") || what.starts_with("/layers/2/")) return;  // as in layers 1 and 3
        for (int i = 0; i < 2; ++i)
          check_planned(what, profile_from_json(json), cluster, all[next++ % all.size()]);
        ++next;
      });
  CHECK(count > 300);
}

TEST_CASE("all numbers of a layer at their limits together, with many micro-batches") {
  Json json = to_json(full_profile());
  for (Json& point : json["layers"][1]["points"]) {
    for (const char* key :
         {"output_bytes", "saved_bytes", "saved_input_bytes", "workspace_bytes", "waiting_bytes"})
      point[key] = kMostInteger;
  }
  json["layers"][1]["parameter_bytes"] = json["layers"][1]["buffer_bytes"] = kMostInteger;
  json["optimizers"][0]["state_bytes_per_parameter_byte"] = kLargestStateRatio;
  for (PlanRequest request : requests()) {
    check_planned("layer 1", profile_from_json(json), full_cluster(), request);
    request.mini_batch = 100'000;
    request.micro_batch_size = 1;
    check_planned("layer 1", profile_from_json(json), full_cluster(), request);
  }
}

TEST_CASE("times next to nothing") {
  Json json = to_json(full_profile());
  const auto shrink = [](auto self, Json& value, const std::string& key) -> void {
    const bool time = key.ends_with("_s") || key == "median" || key == "low" || key == "high";
    if (value.is_number_float() && time) value = 5e-324;
    if (!value.is_structured()) return;
    for (auto& [name, member] : value.items()) self(self, member, name);
  };
  shrink(shrink, json, "");
  for (const PlanRequest& request : requests())
    check_planned("times", profile_from_json(json), full_cluster(), request);
}

TEST_CASE("sizes of micro-batches are integers of 32 bits") {
  Json json = to_json(full_profile());
  const auto set = [&](std::int64_t size) {
    json["micro_batch_sizes"][2] = size;
    json["loss"]["points"][2]["micro_batch_size"] = size;
    for (Json& layer : json["layers"]) layer["points"][2]["micro_batch_size"] = size;
  };
  set(4'294'967'296);
  CHECK_THROWS_WITH_AS(profile_from_json(json),
                       "/micro_batch_sizes/2: must be an integer from 1 to 2147483647, not 4294967296", Error);
  set(2'147'483'647);
  for (PlanRequest request : requests()) {
    check_planned("size", profile_from_json(json), full_cluster(), request);
    request.mini_batch = 2'147'483'647;
    check_planned("size", profile_from_json(json), full_cluster(), request);
    request.extrapolate = false;
    request.mini_batch = 2'147'483'646;
    check_planned("size", profile_from_json(json), full_cluster(), request);
  }
}

TEST_CASE("numbers of a cluster at their limits") {
  const Profile profile = full_profile();
  const int count = for_each_limit(to_json(full_cluster()), cluster_from_json,
                                   [&](const std::string& what, const Json& json) {
                                     for (const PlanRequest& request : requests())
                                       check_planned(what, profile, cluster_from_json(json), request);
                                   });
  CHECK(count > 30);
}

TEST_CASE("numbers of a plan at their limits") {
  PlanRequest request = requests()[1];
  request.memory_limit.reset();
  request.schedule = "1f1b";
  request.stages = 2;
  request.replicas = {2, 2};
  const auto plan = std::get<Plan>(make_plan(full_profile(), full_cluster(), request));
  const int count =
      for_each_limit(to_json(plan), plan_from_json, [&](const std::string& what, const Json& json) {
        CAPTURE(what);
        try {
          const Plan changed = plan_from_json(json);
          check_plan(changed);
          const Seconds makespan = simulate(simulation_input(changed)).makespan;
          const Seconds step = predict(changed, full_profile(), cluster_of(changed)).step;
          CHECK(makespan >= Seconds(0));
          CHECK(step >= Seconds(0));
        } catch (const Error& error) {
          INFO(error.what());
          CHECK(error.kind() != ErrorKind::internal);
        }
      });
  CHECK(count > 100);
}

TEST_CASE("numbers of a request at their limits") {
  const std::vector<std::pair<const char*, std::function<void(PlanRequest&)>>> changes{
      {"mini_batch", [](PlanRequest& r) { r.mini_batch = kMost; }},
      {"micro_batches", [](PlanRequest& r) { r.mini_batch = r.micro_batches.emplace(kMost); }},
      {"micro_batch_size", [](PlanRequest& r) { r.mini_batch = r.micro_batch_size.emplace(kMost); }},
      {"chunks", [](PlanRequest& r) { r.chunks_per_worker = kMost; }},
      {"stages", [](PlanRequest& r) { r.stages = kMost; }},
      {"max_stages", [](PlanRequest& r) { r.max_stages = kMost; }},
      {"cuts", [](PlanRequest& r) { r.cuts = {kMost}; }},
      {"max_replicas", [](PlanRequest& r) { r.max_replicas = kMost; }},
      {"replicas",
       [](PlanRequest& r) {
         r.replicas = {kMost, kMost};
       }},
      {"windows",
       [](PlanRequest& r) {
         r.window = WindowRule::explicit_list, r.windows = {kMost, kMost};
       }},
      {"memory_limit",
       [](PlanRequest& r) { r.memory_limit = Bytes(std::numeric_limits<std::int64_t>::max()); }},
      {"reserve", [](PlanRequest& r) { r.reserve = 1 - 1e-16; }},
      {"context", [](PlanRequest& r) { r.context_bytes = Bytes(std::numeric_limits<std::int64_t>::max()); }},
      {"context", [](PlanRequest& r) { r.context_bytes = Bytes(kMostInteger); }},
      {"state ratio", [](PlanRequest& r) { r.optimizer_state_ratio = 1e30; }},
      {"state ratio", [](PlanRequest& r) { r.optimizer_state_ratio = kLargestStateRatio; }},
      {"overlap", [](PlanRequest& r) { r.all_reduce_overlap = 1; }},
      {"swap", [](PlanRequest& r) { r.schedule = "harmony-pp", r.swap_bandwidth = BytesPerSecond(1e-300); }},
      {"top", [](PlanRequest& r) { r.top = kMost; }}};
  for (const auto& [what, change] : changes) {
    for (PlanRequest request : requests()) {
      change(request);
      check_planned(what, full_profile(), full_cluster(), request);
    }
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
