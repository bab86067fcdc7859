#include "libplan/cost/priced_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "libprofile/core/profile.h"

namespace pp::plan {
namespace {

LayerPrice price_loss(const Profile& profile, int size, const CurveOptions& options) {
  return profile.loss ? price_layer(*profile.loss, size, options) : LayerPrice{};
}

std::vector<LayerPrice> price_layers(const Profile& profile, int size, const CurveOptions& options) {
  std::vector<LayerPrice> prices;
  for (const LayerProfile& layer : profile.layers) prices.push_back(price_layer(layer, size, options));
  return prices;
}

double total_time(std::span<const LayerPrice> layers, const LayerPrice& loss) {
  double total = loss.forward + loss.backward;
  for (const LayerPrice& layer : layers) total += layer.forward + layer.backward;
  return total;
}

/// Of what a micro-batch keeps and sends; at most 1.
double bytes_ratio(std::span<const LayerPrice> small, std::span<const LayerPrice> large) {
  double most = 0;
  bool any = false;
  for (std::size_t l = 0; l < small.size(); ++l) {
    for (const auto bytes : {&LayerPrice::output, &LayerPrice::saved}) {
      if (large[l].*bytes <= 0) continue;
      any = true;
      most = std::max(most, static_cast<double>(small[l].*bytes) / static_cast<double>(large[l].*bytes));
    }
  }
  return any ? std::min(1.0, most) : 1;
}

std::array<double*, 16> all_times(LayerPrice& price) {
  std::array<double*, 16> times{&price.forward, &price.backward, &price.input_gradient, &price.weight_gradient};
  auto next = times.begin() + 4;
  for (PassTimes* extra : {&price.crowded, &price.beside, &price.first}) {
    for (double* time : {&extra->forward, &extra->backward, &extra->input_gradient, &extra->weight_gradient})
      *next++ = time;
  }
  return times;
}

/// What the device itself takes.
std::vector<double*> compute_times(KindCost& cost) {
  std::vector<double*> times;
  const auto add = [&](LayerPrice& price) {
    for (double* time : all_times(price)) times.push_back(time);
  };
  std::ranges::for_each(cost.model.layers, add);
  add(cost.model.loss);
  for (double* time : {&cost.model.fixed.forward, &cost.model.fixed.backward, &cost.optimizer.update_per_byte,
                       &cost.optimizer.update_fixed})
    times.push_back(time);
  return times;
}

/// The same, and what the members of a device send each other.
std::vector<double*> all_times(KindCost& cost) {
  std::vector<double*> times = compute_times(cost);
  times.insert(times.end(), {&cost.optimizer.sum_per_byte, &cost.optimizer.expert_sum_per_byte});
  return times;
}

template <class Pick>
KindCost mixed(KindCost a, KindCost b, const Pick& pick) {
  const std::vector<double*> times = all_times(a), others = all_times(b);
  for (std::size_t i = 0; i < times.size(); ++i) *times[i] = pick(*times[i], *others[i]);
  a.optimizer.new_version = pick(a.optimizer.new_version, b.optimizer.new_version);
  a.model.profiled_devices = pick(a.model.profiled_devices, b.model.profiled_devices);
  return a;
}

/// Tensors are the same on all kinds of devices, up to what their kernels keep.
void take_larger_bytes(LayerPrice& price, const LayerPrice& other) {
  for (const auto bytes :
       {&LayerPrice::output, &LayerPrice::saved, &LayerPrice::saved_input, &LayerPrice::workspace})
    price.*bytes = std::max(price.*bytes, other.*bytes);
  price.waiting = price.waiting && other.waiting ? std::max(price.waiting, other.waiting) : std::nullopt;
}

/// The cost of an optimizer that keeps float32 beside weights of `size` bytes each. An update reads gradients,
/// reads and writes what is kept, and writes the weights; without a master it reads those too.
OptimizerCost with_master(OptimizerCost cost, double size, bool half_gradients) {
  constexpr double kFloat = 4;
  const double values = cost.state_ratio;  // for each parameter, as state and weights are of one type
  const double plain = (3 + 2 * values) * size;
  const double gradient = half_gradients ? size : kFloat;
  const double mixed = gradient + 2 * kFloat * (1 + values) + size;
  cost.gradient_ratio = gradient / size;
  cost.state_ratio = kFloat * (1 + values) / size;
  cost.update_per_byte *= mixed / plain;
  return cost;
}

}  // namespace

PricedModel never_falling(PricedModel model) {
  for (LayerPrice& layer : model.layers) layer = never_falling(layer);
  model.loss = never_falling(model.loss);
  for (PricedModel& other : model.others) other = never_falling(std::move(other));
  return model;
}

void scale_times(LayerPrice& price, double factor) {
  for (double* time : all_times(price)) *time *= factor;
}

KindCost at_speed(KindCost cost, double speed) {
  for (double* time : compute_times(cost)) *time /= speed;
  return cost;
}

KindCost slower_of(KindCost a, KindCost b) {
  return mixed(std::move(a), std::move(b), [](auto x, auto y) { return std::max(x, y); });
}

KindCost faster_of(KindCost a, KindCost b) {
  return mixed(std::move(a), std::move(b), [](auto x, auto y) { return std::min(x, y); });
}

double least_slowness(KindCost cost, KindCost least) {
  const std::vector<double*> times = all_times(cost), others = all_times(least);
  double slowness = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < times.size(); ++i)
    if (*others[i] > 0) slowness = std::min(slowness, *times[i] / *others[i]);
  return slowness < std::numeric_limits<double>::infinity() ? slowness : 1;
}

std::vector<double> kind_rates(const Profile& profile) {
  std::vector<double> rates{1};
  if (profile.others.empty()) return rates;
  const int size = static_cast<int>(profile.micro_batch_sizes.front());
  const PricedModel model = price_model(profile, std::vector{size}, {true, true});
  const double time = total_time(model.layers, model.loss);
  for (const PricedModel& other : model.others) rates.push_back(time / total_time(other.layers, other.loss));
  return rates;
}

namespace {

/// One kind of device.
PricedModel price_kind(const Profile& profile, std::span<const int> sizes, const CurveOptions& options) {
  const int largest = *std::max_element(sizes.begin(), sizes.end());
  const int smallest = *std::min_element(sizes.begin(), sizes.end());
  PricedModel model{price_layers(profile, largest, options),
                    price_loss(profile, largest, options),
                    {sizes.begin(), sizes.end()}};
  model.batch = static_cast<int>(sizes.size());
  model.profiled_devices = profile.device.devices_busy;
  if (profile.operation_overhead) {
    model.fixed = {profile.operation_overhead->forward.median.count(),
                   profile.operation_overhead->backward.median.count()};
  }
  if (smallest == largest) return model;
  std::vector<LayerPrice> small = price_layers(profile, smallest, options);
  const LayerPrice small_loss = price_loss(profile, smallest, options);
  const double time = total_time(model.layers, model.loss);
  model.batch.full = static_cast<int>(std::ranges::count(sizes, largest));
  if (time > 0) model.batch.time = total_time(small, small_loss) / time;
  small.push_back(small_loss);
  std::vector<LayerPrice> large = model.layers;
  large.push_back(model.loss);
  model.batch.bytes = bytes_ratio(small, large);
  return model;
}

void take_larger(PricedModel& model, const PricedModel& other) {
  for (std::size_t l = 0; l < model.layers.size(); ++l) take_larger_bytes(model.layers[l], other.layers[l]);
  take_larger_bytes(model.loss, other.loss);
  model.batch.time = std::max(model.batch.time, other.batch.time);
  model.batch.bytes = std::max(model.batch.bytes, other.batch.bytes);
}

}  // namespace

PricedModel price_model(const Profile& profile, std::span<const int> sizes, const CurveOptions& options) {
  PricedModel model = price_kind(profile, sizes, options);
  for (const Profile& other : profile.others) model.others.push_back(price_kind(other, sizes, options));
  for (const PricedModel& other : model.others) take_larger(model, other);
  for (PricedModel& other : model.others) take_larger(other, model);
  if (std::ranges::adjacent_find(sizes, std::ranges::not_equal_to()) == sizes.end()) return model;
  const int largest = std::ranges::max(sizes);
  for (const int size : sizes) {
    model.scale.times.push_back(size == largest ? 1 : model.batch.time);
    model.scale.bytes.push_back(size == largest ? 1 : model.batch.bytes);
  }
  return model;
}

PricedModel cheapest_model(const Profile& profile, std::span<const int> sizes, const CurveOptions& options) {
  PricedModel model = price_model(profile, sizes, options);
  if (model.scale.empty()) return model;
  // The simulator scales all layers of a micro-batch by one factor, so the bound does too.
  const double factor = model.batch.least_time();
  const auto scale = [&](PricedModel& kind) {
    for (LayerPrice& layer : kind.layers) scale_times(layer, factor);
    scale_times(kind.loss, factor);
    kind.fixed.forward *= factor;
    kind.fixed.backward *= factor;
  };
  scale(model);
  std::ranges::for_each(model.others, scale);
  return model;
}

void check_bytes(const Profile& profile, const PricedModel& model, std::int64_t in_flight) {
  constexpr double kMost = 4e18;  // below 2^63 by more than what is rounded
  constexpr double kCopies = 4;   // of tensors in message buffers, of weights with their gradients
  const auto held = static_cast<double>(in_flight) + kCopies;
  double sum = 0;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const LayerProfile& layer = profile.layers[l];
    const LayerPrice& price = model.layers[l];
    const auto weights = static_cast<double>(layer.parameters.value) + static_cast<double>(layer.buffers.value);
    sum += weights * (held + kLargestStateRatio);
    for (const std::int64_t bytes :
         {price.output, price.saved, price.saved_input, price.workspace, price.waiting.value_or(0)})
      sum += held * static_cast<double>(bytes);
    if (sum <= kMost) continue;
    throw Error(ErrorKind::usage, "layer " + layer.name +
                                      ": with it the layers may hold more than 4e18 bytes in " +
                                      std::to_string(in_flight) +
                                      " micro-batches, which cannot be added up; use fewer micro-batches, or "
                                      "correct the profile");
  }
}

const OptimizerProfile* profiled_optimizer(const Profile& profile, OptimizerName optimizer) {
  for (const OptimizerName name : {optimizer, row_of(optimizer).like}) {
    const auto found = std::ranges::find(profile.optimizers, name_of(name), &OptimizerProfile::name);
    if (found != profile.optimizers.end()) return &*found;
  }
  return nullptr;
}

OptimizerCost optimizer_cost(const Profile& profile, OptimizerName optimizer, std::optional<double> state_ratio,
                             Precision precision) {
  OptimizerCost cost{state_ratio_of(optimizer), 0};
  if (const OptimizerProfile* measured = profiled_optimizer(profile, optimizer)) {
    if (measured->name == name_of(optimizer)) cost.state_ratio = measured->state_bytes_per_parameter_byte;
    const UpdateLine line = update_line(*measured);
    cost.update_per_byte = line.seconds_per_byte;
    cost.update_fixed = line.fixed.count();
    const auto times_as_long = [&](const UpdatePoint& other) {
      const double alone =
          cost.update_fixed + static_cast<double>(other.parameters.value) * cost.update_per_byte;
      return alone > 0 ? other.update.median.count() / alone : 1;
    };
    if (!measured->parts.empty())
      cost.beside = std::max(1.0, times_as_long({measured->parameters, measured->update}));
    if (measured->new_version) cost.new_version = times_as_long(*measured->new_version);
  }
  if (state_ratio) cost.state_ratio = *state_ratio;
  const ExpertGroup& experts = profile.expert_parallel;
  cost.members = group_size(profile) / profile.tensor_degree / profile.shard_group.degree;
  cost.expert_members = group_size(profile) / experts.degree / profile.shard_group.degree;
  cost.sum_per_byte = std::max(profile.context_parallel.sum_s_per_byte, experts.sum_s_per_byte);
  cost.expert_sum_per_byte = experts.expert_sum_s_per_byte;
  const bool half_gradients = profile.trainer && profile.trainer->gradients == GradientType::weights;
  return precision == Precision::mixed
             ? with_master(cost, static_cast<double>(size_of(profile.dtype)), half_gradients)
             : cost;
}

std::vector<OptimizerCost> optimizer_costs(const Profile& profile, OptimizerName optimizer,
                                           std::optional<double> state_ratio, Precision precision) {
  std::vector<OptimizerCost> costs{optimizer_cost(profile, optimizer, state_ratio, precision)};
  for (const Profile& other : profile.others)
    costs.push_back(optimizer_cost(other, optimizer, state_ratio, precision));
  return costs;
}

}  // namespace pp::plan
