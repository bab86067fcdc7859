#include "libplan/search/peers/pipedream_level.h"

#include <algorithm>

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

PipedreamLevel::PipedreamLevel(const Chain& chain, const PeerOptions& options, std::size_t level,
                               const PipedreamLevel* inner, bool all_starts, double bound)
    : chain_(chain),
      options_(options),
      inner_(inner),
      layers_(chain.size()),
      machines_(options.levels[level].devices),
      bandwidth_(options.levels[level].bandwidth.value),
      bound_(bound) {
  const int starts = all_starts ? layers_ : 1;
  values_.assign(at(starts) * at(layers_ + 1) * at(machines_ + 1), kInfinity);
  for (int begin = 0; begin < starts; ++begin) {
    for (int end = begin + 1; end <= layers_; ++end) solve(begin, end);
  }
}

int PipedreamLevel::machines_for(int begin, int end) const {
  if (options_.machines == MachinesRule::exactly) return machines_;
  const double* row = values_.data() + index(begin, end);
  return static_cast<int>(std::min_element(row + 1, row + machines_ + 1) - row);
}

double PipedreamLevel::compute(int begin, int end) const {
  return inner_ != nullptr ? inner_->value(begin, end) : chain_.compute(begin, end);
}

double PipedreamLevel::reduce(int begin, int end, int machines) const {
  const double weights = chain_.sum(chain_.weights, begin, end);
  if (options_.model == PeerModel::pipedream_paper) return 2.0 * (machines - 1) * weights / bandwidth_;
  return 4.0 * (machines - 1) * weights / (bandwidth_ * machines);
}

double PipedreamLevel::spread(double compute, double reduce, int machines) const {
  const bool paper = options_.model == PeerModel::pipedream_paper;
  return (paper ? std::max(compute, reduce) : compute + reduce) / machines;
}

double PipedreamLevel::stage(int begin, int end, int machines) const {
  return spread(compute(begin, end), reduce(begin, end, machines), machines);
}

double PipedreamLevel::alone(int begin, int end, int machines) const {
  const bool divided = inner_ != nullptr && options_.model == PeerModel::pipedream_code;
  const int group = divided ? inner_->machines_ : 1;
  return spread(compute(begin, end), reduce(begin, end, machines) / group, machines);
}

/// Code: both boundaries over the replicas of this stage, which so pays for the senders too; the first stage of
/// a pipeline is not asked. Paper: the boundary in front, whatever the replicas.
double PipedreamLevel::cuts(int begin, int end, int machines) const {
  if (!options_.activation_compression) return 0;
  const double rate = bandwidth_ * *options_.activation_compression;
  const double in = 2 * chain_.cut_activation[at(begin)];
  if (options_.model == PeerModel::pipedream_paper) return in / rate;
  const double out = end < layers_ ? 2 * chain_.cut_activation[at(end)] : 0;
  return std::max(in, out) / (rate * machines);
}

/// The least number of machines, up to this stage, with which it passes the memory test: the machines behind it
/// decide the copies it keeps.
int PipedreamLevel::least_used(int begin, int end, int machines) const {
  if (!options_.memory_limit) return machines;
  const auto limit = static_cast<double>(options_.memory_limit->value);
  const double bytes =
      static_cast<double>(chain_.sum(chain_.saved, begin, end)) + chain_.sum(chain_.weights, begin, end);
  int used = machines;
  while ((machines_ - used + machines - 1) / machines * bytes > limit) ++used;  // no copy, no test, at the end
  return used;
}

void PipedreamLevel::solve(int begin, int end) {
  double* best = values_.data() + index(begin, end);
  for (int m = 1; m <= machines_; ++m) {
    const double value = alone(begin, end, m);
    if (value <= bound_ && least_used(begin, end, m) <= m) best[m] = value;
  }
  for (int split = begin + 1; split < end; ++split) {
    const double* front = values_.data() + index(begin, split);
    for (int q = 1; q < machines_; ++q) {
      const double last = std::max(stage(split, end, q), cuts(split, end, q));
      if (last > bound_) continue;
      for (int m = std::max(q + 1, least_used(split, end, q)); m <= machines_; ++m) {
        best[m] = std::min(best[m], std::max(front[m - q], last));
      }
    }
  }
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
  if (alone(begin, end, machines) <= target && least_used(begin, end, machines) <= machines)
    return descend(begin, end, machines);
  for (int split = begin + 1; split < end; ++split) {
    for (int q = 1; q < machines; ++q) {
      const double last = std::max(stage(split, end, q), cuts(split, end, q));
      if (std::max(value(begin, split, machines - q), last) > target) continue;
      if (least_used(split, end, q) > machines) continue;
      collect(begin, split, machines - q, copies, stages);
      return descend(split, end, q);
    }
  }
}

}  // namespace pp::plan
