// Whatever an option is forced to, a request that leaves it open finds a plan that is as fast, within 0.1 %.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "libplan/request/request.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/forced");

namespace pp::plan {
namespace {

using test::Random;

Profile random_chain(Random& random, int layers) {
  test::ProfileSpec spec{.layers = {}, .edges = {}, .sizes = {1, 2}};
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({static_cast<double>(random.integer(1, 9)),
                           static_cast<double>(random.integer(1, 19)), random.integer(0, 3'000'000),
                           random.integer(1, 400'000), random.integer(1, 3'000'000)});
  }
  return test::make_profile(spec);
}

/// The request with one option at each of its values.
std::vector<std::pair<std::string, PlanRequest>> forced(const Profile& profile, const PlanRequest& open,
                                                        int layers, int devices) {
  std::vector<std::pair<std::string, PlanRequest>> all;
  const auto add = [&](const std::string& name, const auto& set) { set(all.emplace_back(name, open).second); };
  for (const ScheduleRow* row : planned_schedules(profile, open))
    add("schedule " + std::string(row->name), [&](PlanRequest& request) { request.schedule = row->name; });
  for (int stages = 1; stages <= std::min(layers, devices); ++stages)
    add("stages " + std::to_string(stages), [&](PlanRequest& request) { request.stages = stages; });
  for (int count = 4; count <= open.mini_batch; count *= 2)
    add("micro-batches " + std::to_string(count), [&](PlanRequest& request) { request.micro_batches = count; });
  for (int replicas = 1; replicas <= devices; ++replicas)
    add("most replicas " + std::to_string(replicas),
        [&](PlanRequest& request) { request.max_replicas = replicas; });
  for (int chunks = 1; chunks <= layers; ++chunks)
    add("chunks " + std::to_string(chunks), [&](PlanRequest& request) { request.chunks_per_worker = chunks; });
  for (const RecomputeMode mode : {RecomputeMode::never, RecomputeMode::always})
    add("recompute", [&](PlanRequest& request) { request.recompute = mode; });
  for (const ShardChoice shard : {ShardChoice::none, ShardChoice::optimizer})
    add("shard", [&](PlanRequest& request) { request.shard = shard; });
  for (int cut = 1; cut < layers; ++cut)
    add("cut " + std::to_string(cut), [&](PlanRequest& request) { request.cuts = {cut}; });
  return all;
}

/// Seconds; infinity where the request contradicts itself or nothing fits.
double step_within(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  try {
    return test::step_of(test::searched(profile, cluster, request));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

TEST_CASE("no option forced to any value gives a faster plan than one that is left open") {
  Random random(64);
  int compared = 0;
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const int layers = random.integer(4, 8), devices = random.integer(2, 4);
    const Profile profile = random_chain(random, layers);
    const Cluster cluster = test::make_cluster(devices);
    PlanRequest open;
    open.mini_batch = 8;
    open.recompute = RecomputeMode::automatic;
    open.shard = ShardChoice::automatic;
    if (round % 2 == 0) open.memory_limit = Bytes(random.integer(8, 30) * 1'000'000);
    const double free = step_within(profile, cluster, open);
    for (const auto& [name, request] : forced(profile, open, layers, devices)) {
      CAPTURE(name);
      const double step = step_within(profile, cluster, request);
      CHECK(free <= 1.001 * step);
      compared += step < std::numeric_limits<double>::infinity() ? 1 : 0;
    }
  }
  CHECK(compared > 100);
}

/// 40 blocks of five layers, at whose ends the least crosses.
Profile long_row() {
  test::ProfileSpec spec{.layers = {}, .edges = {}, .sizes = {1}};
  for (int l = 0; l < 200; ++l)
    spec.layers.push_back({1 + 0.1 * (l % 5), 2, 2'000'000, l % 5 == 4 ? 200'000 : 900'000, 1'500'000});
  return test::make_profile(spec);
}

/// The same with the names of models: `row.7.3` is in block 7.
Profile row_of_blocks() {
  Profile profile = long_row();
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const std::string name = "row." + std::to_string(l / 5) + "." + std::to_string(l % 5);
    Layer& layer = profile.model.layers[l];
    layer.name = profile.layers[l].name = name;
    if (l > 0) layer.inputs = {profile.layers[l - 1].name};
  }
  profile.model.outputs = {profile.layers.back().name};
  profile.model_hash = model_hash(profile.model);
  return profile;
}

TEST_CASE("cuts anywhere give a plan as fast as cuts between blocks, in the time that those take") {
  const Profile profile = row_of_blocks();
  const std::array levels{LevelSpec{4, BytesPerSecond(4e9)}, LevelSpec{3, BytesPerSecond(1e9)}};
  Cluster cluster = nested_cluster(levels, DeviceKind::cpu, Seconds(1e-5), Bytes(900'000'000));
  for (std::size_t d = 0; d < 12; ++d)
    if (d >= 6) cluster.devices[d].speed = 0.6, cluster.devices[d].memory = Bytes(500'000'000);
  PlanRequest request;
  request.mini_batch = 48;
  request.schedule = "1f1b";
  int looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks > 0; };
  request.cut_at = PlanRequest::CutAt{};
  const double between_blocks = step_within(profile, cluster, request);
  const int enough = looks;
  looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks < enough; };
  request.cut_at.reset();
  CHECK(step_within(profile, cluster, request) <= 1.001 * between_blocks);
}

TEST_CASE("a long row that fits nowhere has no plan, whatever the schedules") {
  const Profile profile = long_row();
  const Cluster cluster = test::make_cluster(12, 1e9);
  PlanRequest request;
  request.mini_batch = 48;
  request.memory_limit = Bytes(1'000'000);
  for (const char* schedules : {"auto", "1f1b,interleaved", "interleaved", "chimera", "zb-v,dualpipe-v"}) {
    CAPTURE(schedules);
    request.schedule = schedules;
    CHECK(step_within(profile, cluster, request) == std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("a search over unequal devices that ends early has a plan near that of the whole search") {
  const Profile profile = long_row();
  Cluster cluster = test::make_cluster(12, 1e9);
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    cluster.devices[d].speed = d < 6 ? 1 : 0.6;
    cluster.devices[d].memory = Bytes(d < 6 ? 900'000'000 : 500'000'000);
  }
  PlanRequest request;
  request.mini_batch = 48;
  request.micro_batches = 48;
  request.schedule = "1f1b";
  int looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks > 0; };
  const double whole = step_within(profile, cluster, request);
  const int part = looks / 2;
  looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks < part; };
  const double early = step_within(profile, cluster, request);
  CAPTURE(part);
  CAPTURE(whole);
  CHECK(early <= 1.05 * whole);
}

}  // namespace pp::plan

TEST_SUITE_END();
