#include "libplan/simulate/expected_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "libplan/simulate/event_loop.h"
#include "libplan/simulate/op_costs.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostOperations = 100'000;  ///< of one draw
constexpr std::size_t kOperations = 400'000;      ///< of all draws
constexpr std::size_t kLeastDraws = 4, kMostDraws = 2048;

/// SplitMix64: Steele, Lea, Flood, OOPSLA'14.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Above 0, at most 1.
double uniform(std::uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

/// Standard normal, by Box and Muller; one for each draw and operation.
double normal(std::uint64_t draw, std::uint64_t op) {
  const std::uint64_t first = mixed(mixed(draw) + op);
  return std::sqrt(-2 * std::log(uniform(first))) * std::cos(2 * std::numbers::pi * uniform(mixed(first)));
}

Spread spread_of(const StageSpread& spread, OpKind kind) {
  switch (kind) {
    case OpKind::forward: return spread.forward;
    case OpKind::backward: return spread.backward;
    case OpKind::input_gradient: return spread.input_gradient;
    case OpKind::weight_gradient: return spread.weight_gradient;
    case OpKind::recompute: return spread.recompute;
    case OpKind::update: return spread.update;
    case OpKind::load:
    case OpKind::evict:
    case OpKind::all_reduce:
    case OpKind::tied_all_reduce: break;
  }
  return {};
}

double density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }
double above_normal(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

/// E[max(0, a + z s)] over the half of a standard normal with z > 0. In seconds; s from 0 upwards.
double mean_of_upper_half(double a, double s) {
  if (s == 0 || a >= 0) return std::max(0.0, a) / 2 + s * density(0);
  return a * above_normal(-a / s) + s * density(a / s);
}

/// The same over z < 0: what is left of it above 0.
double mean_of_lower_half(double a, double s) {
  if (a <= 0) return 0;
  if (s == 0) return a / 2;
  return a * (0.5 - above_normal(a / s)) - s * (density(0) - density(a / s));
}

/// What a time of this median and spread, drawn and never below 0, is on average beyond its median, in seconds.
double mean_excess(double median, const Spread& spread) {
  const double middle = median + spread.shift.count();
  return mean_of_upper_half(middle, spread.above.count()) + mean_of_lower_half(middle, spread.below.count()) -
         median;
}

/// Programs whose operations are drawn again and again.
class Draws {
 public:
  explicit Draws(const SimulationInput& input) : input_(input), index_(index_simulation(input)) {
    const OpCosts costs(index_, input);
    for (std::size_t id = 0; id < index_.ops.size(); ++id) {
      const Op& op = index_.ops[id];
      const auto& spread = input.stages[pp::index(op.stage)].spread;
      const bool scaled = has_micro_batch(op.kind) && !input.micro_batch_scale.empty();
      const double scale =
          (scaled ? input.micro_batch_scale[at(op.micro_batch)] : 1) / index_.slice(static_cast<int>(id)).parts;
      medians_.push_back(costs.own_time(static_cast<int>(id)));
      spreads_.push_back((spread ? spread_of(*spread, op.kind) : Spread{}) * scale);
    }
    input_.own_times = medians_;
  }

  std::size_t size() const { return medians_.size(); }
  const ProgramIndex& index() const { return index_; }
  const SimulationInput& input() const { return input_; }

  void draw(std::uint64_t number) {
    for (std::size_t id = 0; id < size(); ++id) {
      const double z = normal(number, id);
      const Spread& spread = spreads_[id];
      const Seconds beyond = spread.shift + z * (z < 0 ? spread.below : spread.above);
      input_.own_times[id] = std::max(0.0, medians_[id] + beyond.count());
    }
  }

  /// Of the operations in one third of a worker's list: by how much their sum exceeds that of the medians, as
  /// drawn and on average.
  struct Excess {
    double drawn = 0, mean = 0;
  };
  Excess excess(int worker, int third) const {
    const int first = index_.worker_begin[at(worker)];
    const int length = index_.worker_begin[at(worker) + 1] - first;
    Excess sum;
    for (int i = third * length / 3; i < (third + 1) * length / 3; ++i) {
      sum.drawn += input_.own_times[at(first + i)] - medians_[at(first + i)];
      sum.mean += mean_excess(medians_[at(first + i)], spreads_[at(first + i)]);
    }
    return sum;
  }
  int busiest() const {
    std::vector<double> busy(at(index_.workers()), 0);
    for (std::size_t id = 0; id < size(); ++id) busy[at(index_.worker_of[id])] += medians_[id];
    return static_cast<int>(std::ranges::max_element(busy) - busy.begin());
  }

 private:
  SimulationInput input_;
  ProgramIndex index_;
  std::vector<double> medians_;  ///< seconds, by operation
  std::vector<Spread> spreads_;
};

double last_of_three(const Draws& draws) {
  const ChainTimes times = run_chain(draws.index(), draws.input(), 3, Messages::drop);
  return times.ends[2] - times.ends[1];
}

double period(const Draws& draws) {
  return draws.input().programs.synchronous ? last_of_three(draws) : steady_period(draws.input()).count();
}

}  // namespace

std::optional<Seconds> expected_excess(const SimulationInput& input) {
  const auto varies = [](const StageCosts& stage) { return stage.spread.has_value(); };
  if (std::ranges::none_of(input.stages, varies)) return std::nullopt;
  const bool synchronous = input.programs.synchronous;
  Draws draws(synchronous ? chained(input, 3) : input);
  if (draws.size() > kMostOperations) return std::nullopt;
  // The busiest worker's own operations are in every period: what they draw is known on average and taken out.
  const int worker = draws.busiest();
  const int third = synchronous ? 2 : 1;  // that the period is of
  const double parts = synchronous ? 1 : input.programs.micro_batches / 3;
  const double median = period(draws);
  const std::size_t count = std::clamp(kOperations / draws.size(), kLeastDraws, kMostDraws);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    draws.draw(i);
    sum += period(draws) - median - draws.excess(worker, third).drawn / parts;
  }
  return Seconds(sum / static_cast<double>(count) + draws.excess(worker, third).mean / parts);
}

}  // namespace pp::plan
