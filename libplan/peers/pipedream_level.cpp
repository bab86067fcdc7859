#include "libplan/peers/pipedream_level.h"

#include <algorithm>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {}  // namespace

PipedreamCost::PipedreamCost(const Chain& chain, const PeerOptions& options, std::size_t level,
                             const PipedreamLevel* inner)
    : chain_(chain),
      options_(options),
      layers_(chain.size()),
      machines_(options.levels[level].devices),
      bandwidth_(options.levels[level].bandwidth.value) {
  if (inner == nullptr) return;
  if (options.model == PeerModel::pipedream_code) group_ = inner->machines();
  nested_.resize(at(layers_ + 1) * at(layers_));
  for (int begin = 0; begin < layers_; ++begin) {
    for (int end = begin + 1; end <= layers_; ++end) nested_[interval(begin, end)] = inner->value(begin, end);
  }
}

std::size_t PipedreamCost::interval(int begin, int end) const { return at(end) * at(layers_) + at(begin); }

double PipedreamCost::compute(int begin, int end) const {
  return nested_.empty() ? chain_.compute(begin, end) : nested_[interval(begin, end)];
}

double PipedreamCost::reduce(int begin, int end, int machines) const {
  const auto weights = static_cast<double>(chain_.between(begin, end).parameters);
  if (options_.model == PeerModel::pipedream_paper) return 2.0 * (machines - 1) * weights / bandwidth_;
  return 4.0 * (machines - 1) * weights / (bandwidth_ * machines);
}

double PipedreamCost::spread(double compute, double reduce, int machines) const {
  const bool paper = options_.model == PeerModel::pipedream_paper;
  return (paper ? std::max(compute, reduce) : compute + reduce) / machines;
}

/// Code: both boundaries over the replicas of this stage, which so pays for the senders too; the first stage of
/// a pipeline is not asked. Paper: the boundary in front, whatever the replicas.
double PipedreamCost::cuts(int begin, int end, int machines) const {
  if (!options_.activation_compression) return 0;
  const double rate = bandwidth_ * *options_.activation_compression;
  const double in = 2 * chain_.cut_activation[at(begin)];
  if (options_.model == PeerModel::pipedream_paper) return in / rate;
  const double out = end < layers_ ? 2 * chain_.cut_activation[at(end)] : 0;
  return std::max(in, out) / (rate * machines);
}

double PipedreamCost::alone(int begin, int end, int machines) const {
  return spread(compute(begin, end), reduce(begin, end, machines) / group_, machines);
}

double PipedreamCost::whole(int begin, int end, int machines) const {
  return least_used(begin, end, machines) > machines ? kInfinity : alone(begin, end, machines);
}

double PipedreamCost::last(int begin, int end, int machines) const {
  const double stage = spread(compute(begin, end), reduce(begin, end, machines), machines);
  return std::max(stage, cuts(begin, end, machines));
}

int PipedreamCost::least_used(int begin, int end, int machines) const {
  if (!options_.memory_limit) return machines;
  const auto limit = static_cast<double>(options_.memory_limit->value);
  const double bytes =
      static_cast<double>(chain_.between(begin, end).saved + chain_.between(begin, end).parameters);
  int used = machines;
  while ((machines_ - used + machines - 1) / machines * bytes > limit) ++used;  // no copy, no test, at the end
  return used;
}

PipedreamLevel::PipedreamLevel(const Chain& chain, const PeerOptions& options, std::size_t level,
                               const PipedreamLevel* inner, bool all_starts, double bound)
    : options_(options),
      inner_(inner),
      machines_(options.levels[level].devices),
      cost_(chain, options, level, inner),
      table_({chain.size(), machines_, all_starts, bound}, cost_) {}

int PipedreamLevel::machines_for(int begin, int end) const {
  if (options_.machines == MachinesRule::exactly) return machines_;
  int best = 1;
  for (int m = 2; m <= machines_; ++m) {
    if (value(begin, end, m) < value(begin, end, best)) best = m;
  }
  return best;
}

void PipedreamLevel::collect(int begin, int end, int machines, int copies, Partition& stages) const {
  const double target = value(begin, end, machines);
  const auto descend = [&](int first, int last, int count) {
    if (inner_ != nullptr) {
      inner_->collect(first, last, inner_->machines_for(first, last), copies * count, stages);
    } else {
      stages.push_back({first, last, copies * count});
    }
  };
  if (cost_.whole(begin, end, machines) <= target) return descend(begin, end, machines);
  for (int split = begin + 1; split < end; ++split) {
    for (int q = 1; q < machines; ++q) {
      if (std::max(value(begin, split, machines - q), cost_.last(split, end, q)) > target) continue;
      if (cost_.least_used(split, end, q) > machines) continue;
      collect(begin, split, machines - q, copies, stages);
      return descend(split, end, q);
    }
  }
}

}  // namespace pp::plan
