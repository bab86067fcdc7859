// The keys of pp.report that calibrate a profile; all stand in librun/report/report_json.cpp.
#include "libplan/report/calibration.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "libplan/cost/links.h"
#include "libplan/cost/priced_model.h"
#include "libplan/price/predict.h"
#include "libprofile/core/hash.h"

namespace pp::plan {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::data, message); }

void check_sizes(const Plan& plan, const Profile& profile) {
  for (const int size : micro_batch_sizes(plan.training.mini_batch, plan.training.micro_batches)) {
    if (std::ranges::count(profile.micro_batch_sizes, size) > 0) continue;
    std::string known;
    for (const std::int64_t one : profile.micro_batch_sizes)
      known.append(known.empty() ? "" : ", ").append(std::to_string(one));
    refuse("the run had micro-batches of " + std::to_string(size) + " samples, the profile has sizes " + known +
           "; run a plan with one of them, or profile that size");
  }
}

void check_run(const MeasuredRun& run, const Profile& profile) {
  if (const std::string ran = model_hash(run.plan.model); ran != profile.model_hash) {
    refuse("the run is of model \"" + run.plan.model.name + "\" (" + ran + "), the profile of \"" +
           profile.model.name + "\" (" + profile.model_hash + "); run a plan of this profile");
  }
  if (run.plan.training.dtype != profile.dtype) {
    refuse("the run computed in " + std::string(pp::name_of(run.plan.training.dtype)) + ", the profile is of " +
           std::string(pp::name_of(profile.dtype)) + "; run a plan of this profile");
  }
  if (run.plan.training.memory_format != profile.memory_format) {
    refuse("the run had tensors " + std::string(pp::name_of(run.plan.training.memory_format)) +
           ", the profile is of " + std::string(pp::name_of(profile.memory_format)) +
           "; run a plan of this profile");
  }
  if (run.plan.training.autocast != profile.autocast)
    refuse("the run's plan and the profile are not of the same autocast; run a plan of this profile");
  for (const Device& device : run.plan.devices) {
    if (device.kind == profile.device.kind) continue;
    refuse("the run used devices of kind " + std::string(pp::name_of(device.kind)) + ", the profile is of " +
           std::string(pp::name_of(profile.device.kind)) + "; run a plan of this profile");
  }
  check_sizes(run.plan, profile);
}

/// Measured and promised seconds of operations, the fixed part of both taken off where something is left of
/// each.
struct Pair {
  double measured = 0, promised = 0;

  explicit operator bool() const { return measured > 0 && promised > 0; }
  std::optional<double> factor() const { return *this ? std::optional(measured / promised) : std::nullopt; }
};

Pair operator+(const Pair& a, const Pair& b) { return {a.measured + b.measured, a.promised + b.promised}; }

/// The operations of one stage, on one of its devices where `replica` says so.
class StageOperations {
 public:
  StageOperations(const MeasuredRun& run, const Profile& profile, const Prediction& promised, StageId stage,
                  std::optional<std::size_t> replica = std::nullopt)
      : run_(run), promised_(promised), stage_(stage), replica_(replica) {
    const Stage& layers = run.plan.stages[index(stage)];
    const double slowest = slowest_speed(run.plan, layers);
    speed_ = replica ? device_of(run.plan, layers.workers[*replica]).speed : slowest;
    share_ = slowest / speed_;
    if (!profile.operation_overhead) return;
    fixed_ = {profile.operation_overhead->forward.median.count() / speed_,
              profile.operation_overhead->backward.median.count() / speed_};
  }

  bool has(OpKind kind) const { return measured(kind) > Seconds(); }

  Pair of(OpKind kind) const {
    if (!has(kind)) return {};
    const Pair whole{measured(kind).count(),
                     share_ * promised_time(run_.plan, promised_, kind, stage_).count()};
    const double fixed = fixed_of(kind);
    const Pair layers{whole.measured - fixed, whole.promised - fixed};
    return layers ? layers : whole;
  }

 private:
  Seconds measured(OpKind kind) const {
    const auto found = std::ranges::find_if(run_.operations, [&](const MeasuredRun::Operation& operation) {
      return operation.kind == kind && operation.stage == stage_;
    });
    if (found == run_.operations.end()) return {};
    if (replica_ && *replica_ < found->replicas.size()) return found->replicas[*replica_];
    return found->median;
  }

  double fixed_of(OpKind kind) const {
    if (kind == OpKind::forward) return fixed_.forward;
    return kind == OpKind::update ? 0 : fixed_.backward;
  }

  const MeasuredRun& run_;
  const Prediction& promised_;
  StageId stage_;
  std::optional<std::size_t> replica_;
  double speed_ = 1;
  double share_ = 1;  ///< of the prices, which are those of the slowest device
  OperationCost fixed_;
};

StageFactors stage_factors(const std::vector<std::string>& layers, const StageOperations& operations) {
  StageFactors factors{layers,
                       operations.of(OpKind::forward).factor(),
                       operations.of(OpKind::backward).factor(),
                       operations.of(OpKind::input_gradient).factor(),
                       operations.of(OpKind::weight_gradient).factor(),
                       operations.of(OpKind::update).factor()};
  const Pair halves = operations.of(OpKind::input_gradient) + operations.of(OpKind::weight_gradient);
  if (!factors.backward) factors.backward = halves.factor();
  if (!factors.input_gradient) factors.input_gradient = factors.backward;
  if (!factors.weight_gradient) factors.weight_gradient = factors.backward;
  return factors;
}

using Factor = std::optional<double> StageFactors::*;
struct LayerFactor {
  OpKind kind;
  Factor measured;
  double LayerCorrection::*corrected;
};
constexpr std::array kLayerFactors{
    LayerFactor{OpKind::forward, &StageFactors::forward, &LayerCorrection::forward},
    LayerFactor{OpKind::backward, &StageFactors::backward, &LayerCorrection::backward},
    LayerFactor{OpKind::input_gradient, &StageFactors::input_gradient, &LayerCorrection::input_gradient},
    LayerFactor{OpKind::weight_gradient, &StageFactors::weight_gradient, &LayerCorrection::weight_gradient}};

PlacedFactors placed_factors(const MeasuredRun& run, StageId stage, std::size_t replica,
                             const StageOperations& operations) {
  const Stage& layers = run.plan.stages[index(stage)];
  PlacedFactors placed{.stage = stage_factors(layers.layers, operations),
                       .measured = {},
                       .device = device_of(run.plan, layers.workers[replica]),
                       .work = {},
                       .last = index(stage) + 1 == run.plan.stages.size()};
  for (const LayerFactor& one : kLayerFactors)
    if (operations.has(one.kind)) placed.measured.push_back(one.kind);
  for (const OpKind kind : placed.measured)
    placed.work += Seconds(operations.of(kind).promised) / static_cast<double>(layers.workers.size());
  if (const Pair update = operations.of(OpKind::update)) {
    placed.measured_update = update.measured;
    placed.promised_update = update.promised;
  }
  return placed;
}

/// 1 without factors; of an even number the mean of the two in the middle.
double median(std::vector<double> factors) {
  if (factors.empty()) return 1;
  std::ranges::sort(factors);
  const std::size_t half = factors.size() / 2;
  return factors.size() % 2 == 1 ? factors[half] : (factors[half - 1] + factors[half]) / 2;
}

/// A stage on a device, and the factor that is the device's doing.
struct Place {
  const PlacedFactors* factors;
  double device = 1;
};

std::string key_of(const Device& device) { return device.node + '/' + std::to_string(number(device.id)); }

/// All places of the runs, in order.
std::vector<Place> places_of(std::span<const RunFactors> runs) {
  std::map<std::pair<std::string, OpKind>, int> rows;
  std::map<std::string, int> devices;
  std::map<std::pair<std::size_t, int>, int> columns;  // by run and device
  TwoWayTable table;
  std::vector<Place> places;
  constexpr int kNone = -1;
  std::vector<int> column_of;  // of each place
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::vector<const PlacedFactors*> barely = barely_used(runs[run]);
    for (const PlacedFactors& one : runs[run].places) {
      places.push_back({&one});
      column_of.push_back(kNone);
      if (std::ranges::count(barely, &one) > 0) continue;
      const int device = devices.emplace(key_of(one.device), std::ssize(devices)).first->second;
      const auto [column, added] = columns.emplace(std::pair(run, device), std::ssize(columns));
      if (added) table.devices.push_back(device);
      for (const LayerFactor& factor : kLayerFactors) {
        const std::optional<double>& ratio = one.stage.*factor.measured;
        if (!ratio || std::ranges::count(one.measured, factor.kind) == 0) continue;
        for (const std::string& layer : one.stage.layers) {
          const int row = rows.emplace(std::pair(layer, factor.kind), std::ssize(rows)).first->second;
          table.cells.push_back({row, column->second, *ratio});
        }
      }
      column_of.back() = column->second;
    }
  }
  table.rows = static_cast<int>(rows.size());
  const TwoWayFactors factors = two_way_factors(table);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (column_of[i] == kNone) continue;
    const double device = factors.columns[static_cast<std::size_t>(column_of[i])];
    if (std::max(device, 1 / device) > kSameSpeed) places[i].device = device;
  }
  return places;
}

/// Of the stages in which a layer stood.
LayerCorrection correction_of(const std::string& layer, const std::vector<Place>& stood) {
  LayerCorrection correction{layer};
  for (const LayerFactor& one : kLayerFactors) {
    std::vector<double> factors;
    for (const Place& place : stood) {
      if (const auto& factor = place.factors->stage.*one.measured) factors.push_back(*factor / place.device);
    }
    correction.*one.corrected = median(std::move(factors));
  }
  return correction;
}

bool changes(const LayerCorrection& correction) {
  return std::ranges::any_of(kLayerFactors,
                             [&](const LayerFactor& one) { return correction.*one.corrected != 1; });
}

/// All updates of a run together.
std::optional<double> update_factor(const RunFactors& run, const std::vector<Place>& places) {
  Pair updates;
  for (const Place& place : places) {
    const auto inside = [&](const PlacedFactors& one) { return &one == place.factors; };
    if (std::ranges::any_of(run.places, inside))
      updates = updates + Pair{place.factors->measured_update / place.device, place.factors->promised_update};
  }
  return updates.factor();
}

void add_updates(Calibration& calibration, const Profile& profile, std::span<const RunFactors> runs,
                 const std::vector<Place>& places) {
  std::map<std::string, std::vector<double>> updates;  // by the optimizer of the profile
  for (const RunFactors& run : runs) {
    const std::optional<double> factor = update_factor(run, places);
    const OptimizerProfile* measured = profiled_optimizer(profile, run.optimizer);
    if (factor && measured != nullptr) updates[measured->name].push_back(*factor);
  }
  for (const auto& [optimizer, factors] : updates) {
    for (const double factor : factors) {
      calibration.least = std::min(calibration.least, factor);
      calibration.largest = std::max(calibration.largest, factor);
    }
    if (const double factor = median(factors); factor != 1) calibration.updates.push_back({optimizer, factor});
  }
}

/// The last one of each.
std::vector<MeasuredSpeed> speeds_of(const std::vector<Place>& places) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  std::map<std::string, MeasuredSpeed> speeds;
  for (const Place& place : places) {
    const Device& device = place.factors->device;
    speeds[key_of(device)] = {device.id, device.node, std::clamp(device.speed / place.device, kLeast, kMost)};
  }
  std::vector<MeasuredSpeed> changed;
  for (const auto& [key, one] : speeds)
    if (one.speed != 1) changed.push_back(one);
  std::ranges::sort(changed, {}, [](const MeasuredSpeed& one) { return number(one.device); });
  return changed;
}

void check_format(ObjectReader& reader) {
  const std::string format = reader.text("format");
  if (format != "pp.report") reader.fail("format", "is \"" + format + "\"; a run's report is \"pp.report\"");
  const std::int64_t version = reader.integer("version");
  if (version != 1) reader.fail("version", "is " + std::to_string(version) + "; this program reads version 1");
}

MeasuredRun::Operation read_operation(ObjectReader& reader, const Plan& plan) {
  MeasuredRun::Operation operation;
  operation.kind = reader.enumerator<OpKind>("kind");
  operation.stage = StageId{
      static_cast<int>(reader.integer("stage", {.max = static_cast<std::int64_t>(plan.stages.size()) - 1}))};
  reader.integer("count");
  reader.number("predicted_s");
  operation.median = Seconds(reader.number("median_s"));
  if (reader.has("replica_medians_s")) {
    const std::vector<double> medians = reader.numbers("replica_medians_s");
    const std::size_t replicas = plan.stages[index(operation.stage)].workers.size();
    if (medians.size() != replicas)
      reader.fail("replica_medians_s", "must be " + std::to_string(replicas) +
                                           " as the stage has workers, found " +
                                           std::to_string(medians.size()));
    for (const double median : medians) operation.replicas.emplace_back(median);
  }
  return operation;
}

}  // namespace

std::vector<const PlacedFactors*> barely_used(const RunFactors& run) {
  std::map<std::string, Seconds> work;
  for (const PlacedFactors& place : run.places) work[key_of(place.device)] += place.work;
  Seconds most{};
  for (const auto& [device, seconds] : work) most = std::max(most, seconds);
  std::vector<const PlacedFactors*> barely;
  for (const PlacedFactors& place : run.places)
    if (work[key_of(place.device)] < kComparable * most) barely.push_back(&place);
  return barely;
}

RunFactors factors_of(const MeasuredRun& run, const Profile& profile) {
  check_run(run, profile);
  const Prediction promised = predict(run.plan, profile, cluster_of(run.plan));
  RunFactors factors{run.hash, {}, run.plan.training.optimizer, {}};
  for (std::size_t s = 0; s < run.plan.stages.size(); ++s) {
    const Stage& stage = run.plan.stages[s];
    const StageId id{static_cast<int>(s)};
    factors.stages.push_back(stage_factors(stage.layers, {run, profile, promised, id}));
    for (std::size_t replica = 0; replica < stage.workers.size(); ++replica)
      factors.places.push_back(placed_factors(run, id, replica, {run, profile, promised, id, replica}));
  }
  const auto forwards = [](const StageFactors& stage) { return stage.forward.has_value(); };
  if (std::ranges::none_of(factors.stages, forwards))
    refuse("/op_times: has no measured forward; calibrate with a run of some steps");
  return factors;
}

Calibration calibration_of(const Profile& profile, std::span<const RunFactors> runs) {
  Calibration calibration{{}, std::numeric_limits<double>::infinity(), 0};
  for (const RunFactors& run : runs) calibration.reports.push_back(run.report);
  const std::vector<Place> places = places_of(runs);
  std::map<std::string_view, std::vector<Place>> stood;
  std::vector<Place> last;
  for (const Place& place : places) {
    for (const std::string& layer : place.factors->stage.layers) stood[layer].push_back(place);
    if (place.factors->last) last.push_back(place);
    for (const LayerFactor& one : kLayerFactors) {
      const std::optional<double>& factor = place.factors->stage.*one.measured;
      if (!factor) continue;
      calibration.least = std::min(calibration.least, *factor / place.device);
      calibration.largest = std::max(calibration.largest, *factor / place.device);
    }
  }
  for (const LayerProfile& layer : profile.layers) {
    if (LayerCorrection correction = correction_of(layer.name, stood[layer.name]); changes(correction))
      calibration.layers.push_back(std::move(correction));
  }
  if (LayerCorrection loss = correction_of("", last); changes(loss)) calibration.loss = std::move(loss);
  add_updates(calibration, profile, runs, places);
  calibration.devices = speeds_of(places);
  return calibration;
}

MeasuredRun parse_measured_run(std::string_view text) {
  const Json json = parse_json(text);
  ObjectReader reader(json, "");
  check_format(reader);
  MeasuredRun run;
  run.hash = content_hash(dump_json_compact(json));
  const Json& plan = reader.raw("plan");
  with_context("/plan", [&] {
    run.plan = plan_from_json(plan);
    check_plan(run.plan);
  });
  reader.objects("op_times",
                 [&](ObjectReader& row) { run.operations.push_back(read_operation(row, run.plan)); });
  return run;
}

}  // namespace pp::plan
