#include "libplan/cost/chain_load.h"

#include <algorithm>

namespace pp::plan {

ChainLoad::ChainLoad(const Chain& chain, const LoadOptions& options, const StageMemory* memory,
                     int max_replicas)
    : chain_(chain),
      options_(options),
      memory_(memory),
      max_replicas_(max_replicas),
      recompute_(chain, memory, options.recompute) {
  per_byte_ = occupancy(1, options.link);
  by_replicas_.resize(static_cast<std::size_t>(max_replicas) + 1);
  for (int q = 1; q <= max_replicas; ++q) {
    ByReplicas& entry = by_replicas_[static_cast<std::size_t>(q)];
    entry.count = (options.micro_batches + q - 1) / q;
    entry.ring_fixed = ring_all_reduce(q, 0, options.link);
    entry.tree_fixed = tree_all_reduce(q, 0, options.link);
    entry.ring_per_byte = q == 1 ? 0 : 2.0 * (q - 1) / q * per_byte_;
    entry.tree_per_byte = q == 1 ? 0 : 2 * per_byte_;
  }
}

double ChainLoad::stage(int begin, int end, int replicas) const {
  const ByReplicas& q = by(replicas);
  const double f = chain_.stage_forward(begin, end);
  const double b = chain_.stage_backward(begin, end);
  const double weights = chain_.sum(chain_.weights, begin, end);
  const double update = chain_.stage_update(begin, end);
  const double all_reduce =
      std::min(q.ring_fixed + q.ring_per_byte * weights, q.tree_fixed + q.tree_per_byte * weights);
  const double overlap = options_.all_reduce_overlap;
  const double n = q.count;
  const double again = recompute_.seconds(begin, end, replicas, n);
  const double fill = chain_.stage_compute(0, end);
  switch (options_.kind) {
    case LoadKind::period:
    case LoadKind::period_bound:  // the replicas update after n micro-batches each
      return (std::max(n * (f + b), n * f + (n - overlap) * b + all_reduce) + n * again + update) *
             options_.micro_batches / (n * replicas);
    case LoadKind::step:
      return std::max((n - 1) * (f + b), (n - 1) * f + (n - 1 - overlap) * b + all_reduce) + n * again + update;
    case LoadKind::step_bound:
      return std::max(fill + (n - 1) * (f + b),
                      n * f + std::max(n * b, (n - overlap) * b + all_reduce) + update) +
             n * again;
    case LoadKind::makespan_bound:
      return std::max(fill + (n - 1) * (f + b), chain_.stage_forward(0, end) + (n - 1) * f +
                                                    std::max(n * b, (n - overlap) * b + all_reduce) + update) +
             n * again;
  }
  return 0;
}

double ChainLoad::cut(int boundary, int replicas, CutSide side) const {
  const auto k = static_cast<std::size_t>(boundary);
  const double larger = std::max(chain_.cut_activation[k], chain_.cut_gradient[k]);
  switch (options_.kind) {
    case LoadKind::period: return options_.micro_batches * larger * per_byte_ / replicas;
    case LoadKind::period_bound:
      return options_.micro_batches * (side == CutSide::in ? chain_.least_in[k] : chain_.least_out[k]) *
             per_byte_ / replicas;
    case LoadKind::step: return (by(replicas).count - 1) * (larger * per_byte_);
    case LoadKind::step_bound:
    case LoadKind::makespan_bound: return 0;
  }
  return 0;
}

bool ChainLoad::fits(int begin, int end, int replicas, int later) const {
  return memory_ == nullptr || memory_->fits_at_least(begin, end, replicas, later);
}

int ChainLoad::scan_replicas() const {
  // With one micro-batch per replica the backward only hides the all-reduce, so its factor is negative.
  const bool negative = options_.kind == LoadKind::step && options_.all_reduce_overlap > 0;
  return negative && options_.micro_batches > 1 && options_.micro_batches <= max_replicas_
             ? options_.micro_batches
             : 0;
}

std::vector<double> fill_times(const Chain& chain, const Link& link) {
  std::vector<double> times(chain.cut_activation.size(), 0);
  for (std::size_t k = 1; k + 1 < times.size(); ++k) {
    times[k] = transfer_time(chain.cut_activation[k], chain.cut_activations[k], link) +
               transfer_time(chain.cut_gradient[k], chain.cut_gradients[k], link) + chain.fixed.forward +
               chain.fixed.backward;
  }
  return times;
}

}  // namespace pp::plan
