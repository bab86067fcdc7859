// Every layer of a model at the size of its micro-batches: what chains are built from and what the simulator is
// given.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"
#include "libplan/cost/micro_batches.h"
#include "libplan/plan/plan.h"

namespace pp::plan {

struct PricedModel {
  std::vector<LayerPrice> layers;        ///< of the largest micro-batch
  LayerPrice loss = {.waiting = 0};      ///< zero without a loss
  std::vector<int> sizes;                ///< samples of each micro-batch
  MicroBatchScale scale = {};            ///< relative to `layers`
  MicroBatches batch = {};               ///< the same, in short
  OperationCost fixed = {};              ///< zero where the profile has none
  int profiled_devices = 1;              ///< that were busy at once
  std::vector<PricedModel> others = {};  ///< of Profile::others: the same but for times

  const PricedModel& of_kind(int kind) const { return kind == 0 ? *this : others[at(kind - 1)]; }
};

/// Of every layer and the loss what never_falling() says.
PricedModel never_falling(PricedModel model);

/// Multiplies every time of the price.
void scale_times(LayerPrice& price, double factor);

/// What devices of one kind take for a model and its updates; or what no device of several kinds takes longer
/// than, or less than, for any of it.
struct KindCost {
  PricedModel model;
  OptimizerCost optimizer;
};
/// On a device `speed` times as fast.
KindCost at_speed(KindCost cost, double speed);
/// The larger one of every time, or the smaller one.
KindCost slower_of(KindCost a, KindCost b);
KindCost faster_of(KindCost a, KindCost b);
/// How many times as long as `least` it takes for anything, at least.
double least_slowness(KindCost cost, KindCost least);
/// How fast the kinds of devices are for the whole model, relative to the first.
std::vector<double> kind_rates(const Profile& profile);

/// Unequal micro-batches are priced at their own size: their times as the whole model's compare, their bytes by
/// the layer that keeps or sends most of its share. Where kinds of devices differ in bytes, or in how unequal
/// micro-batches compare, the larger figure counts for all. Throws pp::Error (usage) as price_layer() does.
PricedModel price_model(const Profile& profile, std::span<const int> sizes, const CurveOptions& options);

/// The same with the times of the cheapest micro-batch: what a bound may count for every one.
PricedModel cheapest_model(const Profile& profile, std::span<const int> sizes, const CurveOptions& options);

/// Throws pp::Error (usage) where the bytes of all layers, with `in_flight` micro-batches and as many weight
/// versions of them in memory, are too many to be added up.
void check_bytes(const Profile& profile, const PricedModel& model, std::int64_t in_flight);

/// The optimizer whose update counts: the profile's own, or of one that was not profiled the nearest one
/// (OptimizerRow::like); null without either.
const OptimizerProfile* profiled_optimizer(const Profile& profile, OptimizerName optimizer);

/// `state_ratio` unset: the profile's for this optimizer, else state_ratio_of(). The update's time is the
/// line (core/profile.h) of profiled_optimizer(), without one it costs nothing; `beside` and `new_version` are
/// what its `update` and `new_version` take over the line at their parameters.
/// With `mixed`, of a half type: gradients of 4 bytes a parameter, state of 4 for the master and as much for
/// each value that the optimizer keeps, and an update that is as many times as long as it reads and writes
/// more bytes.
OptimizerCost optimizer_cost(const Profile& profile, OptimizerName optimizer, std::optional<double> state_ratio,
                             Precision precision);
/// The same by kind of device (Profile::of_kind()).
std::vector<OptimizerCost> optimizer_costs(const Profile& profile, OptimizerName optimizer,
                                           std::optional<double> state_ratio, Precision precision);

}  // namespace pp::plan
