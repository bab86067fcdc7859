#include "tests/libplan/search/drawn_problems.h"

#include <array>
#include <vector>

#include "libplan/request/request.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {
namespace {

TimeStat milliseconds(double time) {
  return {Seconds(1e-3 * time), Seconds(1e-3 * time), Seconds(1e-3 * time), 9};
}

/// Times and bytes of sizes 1, 2, .. on a line, not through the origin, in every other layer.
void bend(Random& random, Profile& profile) {
  for (LayerProfile& layer : profile.layers) {
    if (random.integer(0, 1) == 0) continue;
    const Seconds time(1e-3 * random.integer(0, 3));
    const Bytes bytes(random.integer(0, 3) * kMb / 2);
    for (LayerPoint& point : layer.points) {
      point.forward.median += time;
      point.backward.median += 2 * time;
      point.saved += bytes;
      point.output += bytes;
    }
  }
}

void add_loss(Random& random, Profile& profile) {
  LayerProfile loss;
  loss.name = "loss";
  for (const std::int64_t size : profile.micro_batch_sizes) {
    LayerPoint point;
    point.micro_batch_size = size;
    const double forward = random.integer(0, 10), backward = random.integer(0, 10);
    point.forward = milliseconds(forward * static_cast<double>(size));
    point.backward = milliseconds(backward * static_cast<double>(size));
    point.saved = Bytes(random.integer(0, 2) * kMb * size);
    loss.points.push_back(point);
  }
  profile.loss = loss;
}

void add_updates(Random& random, Profile& profile) {
  Bytes all(1);
  for (const LayerProfile& layer : profile.layers) all += layer.parameters;
  profile.optimizers.push_back({"sgd", 0.5 * random.integer(0, 4), milliseconds(random.integer(0, 8)), all});
}

/// What waits between the halves of the backward, which also says what readers keep.
void measure_waiting(Profile& profile) {
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) point.waiting = Bytes(point.saved.value / 2);
  }
}

/// What a device takes with a part of the model, and alone, against what it takes among full ones.
void measure_crowding(Random& random, Profile& profile) {
  profile.device.devices_busy = 3;
  for (LayerProfile& layer : profile.layers) {
    if (random.integer(0, 2) == 0) continue;
    for (LayerPoint& point : layer.points) {
      const auto drawn = [&] {
        const double forward = 0.25 * random.integer(2, 6), backward = 0.25 * random.integer(2, 6);
        return without_spread(forward * point.forward.median, backward * point.backward.median,
                              backward / 2 * point.backward.median, backward / 2 * point.backward.median);
      };
      point.in_part = drawn();
      if (random.integer(0, 1) == 0) point.alone = drawn();
    }
  }
}

/// An update among full devices, of parts, and of weights that are still held: each in a time of its own.
void measure_updates(Random& random, Profile& profile) {
  for (OptimizerProfile& optimizer : profile.optimizers) {
    if (random.integer(0, 1) == 0)
      optimizer.new_version = {optimizer.parameters, milliseconds(random.integer(0, 8))};
    if (random.integer(0, 1) == 0) continue;
    for (const int part : {1, 2})
      optimizer.parts.push_back({Bytes(part * kMb), milliseconds(random.integer(0, 4))});
  }
}

/// Mostly one of the usual ones, else any that leaves the placement to the planner and runs whole micro-batches
/// on a pipeline of any length.
const ScheduleRow& random_row(Random& random) {
  constexpr std::array kUsual{"gpipe", "gpipe", "1f1b", "1f1b", "pipedream"};
  if (random.integer(0, 2) > 0) return require_schedule(kUsual[at(random.integer(0, 4))]);
  std::vector<const ScheduleRow*> rows;
  for (const ScheduleRow& row : schedule_table()) {
    const bool planned = row.no_plan.empty() && row.source == ProgramSource::generator && !places_stages(row);
    if (planned && !row.splits && !row.one_stage) rows.push_back(&row);
  }
  return *rows[at(random.integer(0, static_cast<int>(rows.size()) - 1))];
}

}  // namespace

Profile draw_profile(Random& random, int layers, bool graph) {
  ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    const int output = random.integer(0, 4), saved = random.integer(0, 5);
    spec.layers.push_back({1.0 * random.integer(1, 8), 2.0 * random.integer(1, 8), random.integer(0, 3) * kMb,
                           output * kMb, saved * kMb, random.integer(0, saved) * kMb,
                           random.integer(0, 2) * kMb});
    for (int from = 0; graph && from < l; ++from) {
      if (random.integer(0, 2) == 0) spec.edges.emplace_back(from, l);
    }
  }
  if (graph && spec.edges.empty()) spec.edges.emplace_back(0, layers - 1);
  spec.sizes = {1, 2, 3};
  Profile profile = make_profile(spec);
  if (random.integer(0, 1) == 0) bend(random, profile);
  if (random.integer(0, 1) == 0) add_loss(random, profile);
  if (random.integer(0, 1) == 0) add_updates(random, profile);
  if (random.integer(0, 1) == 0) measure_waiting(profile);
  return profile;
}

DrawnProblem draw_problem(Random& random, int most_layers) {
  const bool graph = random.integer(0, 2) == 0 && most_layers > 2;
  DrawnProblem one{draw_profile(random, random.integer(graph ? 3 : 1, most_layers), graph),
                   make_cluster(random.integer(1, 3)),
                   {}};
  if (random.integer(0, 3) == 0) measure_crowding(random, one.profile);
  if (random.integer(0, 1) == 0) measure_updates(random, one.profile);
  PlanRequest& request = one.request;
  const ScheduleRow& row = random_row(random);
  const bool single = !row.synchronous && !groups(row, row.default_policy());
  request.micro_batches = single ? 1 : random.integer(1, 4);
  request.mini_batch = *request.micro_batches + random.integer(0, *request.micro_batches);
  request.schedule = row.name;
  request.window = WindowRule::win;  // the planner leaves it alone
  if (!row.windowed) request.window.reset();
  if (random.integer(0, 2) > 0) request.memory_limit = Bytes(random.integer(4, 60) * kMb);
  if (random.integer(0, 2) == 0) request.all_reduce_overlap = 0.5 * random.integer(0, 2);
  return one;
}

}  // namespace pp::plan::test
