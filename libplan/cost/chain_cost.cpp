#include "libplan/cost/chain_cost.h"

#include <algorithm>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kEverySpan = 16;  ///< devices; their spans are quadratic in them

OperationCost handling(const Exchange& tensors, const Link& link) {
  return {handling_time(tensors.activation, tensors.activations, link),
          handling_time(tensors.gradient, tensors.gradients, link)};
}

/// Over all inner boundaries.
Exchange least_of(const std::vector<Exchange>& boundaries) {
  if (boundaries.size() < 3) return {};
  Exchange least = boundaries[1];
  for (std::size_t k = 2; k + 1 < boundaries.size(); ++k) least = least_of(least, boundaries[k]);
  return least;
}

}  // namespace

ChainCost::ChainCost(const Chain& chain, const LoadOptions& options, Seats seats, const InFlight& in_flight)
    : ChainCost(chain, options, std::make_shared<const Seats>(std::move(seats)), in_flight) {}

ChainCost::ChainCost(const Chain& chain, const LoadOptions& options, std::shared_ptr<const Seats> seats,
                     const InFlight& in_flight)
    : chain_(chain),
      options_(options),
      seats_(std::move(seats)),
      sharded_(in_flight.sharded),
      unit_(is_bound() ? options.micro_batches.least_time() : 1),
      least_in_(least_of(chain.least_in)),
      least_out_(least_of(chain.least_out)) {
  // The last micro-batch, whose backward hides an all-reduce, may be the largest.
  if (is_bound()) options_.all_reduce_overlap *= options_.micro_batches.most_time() / unit_;
  for (std::size_t i = 0; i < seats_->all.size(); ++i) {
    const int replicas = static_cast<int>(i) % seats_->devices + 1;
    places_.push_back(make_place(seats_->all[i], replicas, in_flight));
  }
  set_least();
}

void ChainCost::set_least() {
  least_slowness_ = kInfinity;
  std::vector<Runner> singles;
  for (int first = 0; first < (seats_->uniform ? 1 : seats_->devices); ++first) {
    singles.push_back(place({first, 1}).slowest);
    least_slowness_ = std::min(least_slowness_, singles.back().slowness);
  }
  if (seats_->uniform || chain_.kinds.empty() || options_.kind != LoadKind::step) return;
  least_compute_.assign(1, 0);
  for (int p = 0; p < chain_.size(); ++p) {
    double least = kInfinity;
    for (const Runner& one : singles) least = std::min(least, one.slowness * one.chain->compute(p, p + 1));
    least_compute_.push_back(least_compute_.back() + least);
  }
}

bool ChainCost::is_bound() const {
  return options_.kind == LoadKind::step_bound || options_.kind == LoadKind::period_bound;
}

ChainCost::Place ChainCost::make_place(const Seat& seat, int replicas, const InFlight& in_flight) {
  const MemoryLimit& limit = seat.limit;
  const Key key(limit.bytes, limit.in, limit.out);
  const StageMemory& memory = memories_.try_emplace(key, chain_, in_flight, limit).first->second;
  Place place{.seat = &seat, .limited = memory.limited(), .memory = &memory};
  if (!is_served(in_flight.policy)) place.all_reduce = seat.all_reduce;
  if (has_server(in_flight.policy)) place.server = seat.server;
  place.asks_devices = asks_devices(seat.in.link) || asks_devices(seat.out.link);
  if (place.asks_devices) {
    place.least_received = handling(least_in_, seat.in.link);
    place.least_sent = handling(least_out_, seat.out.link);
  }
  place.turns = options_.micro_batches.turns(replicas, &MicroBatches::time) / unit_;
  place.messages = options_.micro_batches.turns(replicas, &MicroBatches::bytes) / place.turns;
  place.in = load_per_byte(seat, seat.in, replicas);
  place.out = load_per_byte(seat, seat.out, replicas);
  add_runners(place, memory);
  return place;
}

void ChainCost::add_runners(Place& place, const StageMemory& memory) {
  const auto takes = [](const Runner& one) { return one.slowness * one.chain->compute(0, one.chain->size()); };
  for (const auto& [kind, slowness] : place.seat->kinds) {
    Runner runner{seats_->uniform ? &chain_ : &chain_.of_kind(kind), slowness};
    if (memory.in_flight().recompute != RecomputeMode::never)
      runner.again = &again_.try_emplace({&memory, runner.chain}, *runner.chain, memory).first->second;
    if (place.slowest.chain == nullptr) {
      place.slowest = runner;
      continue;
    }
    if (takes(runner) > takes(place.slowest)) std::swap(runner, place.slowest);
    place.others.push_back(runner);
  }
}

/// Of what crosses a gate for each micro-batch.
double ChainCost::load_per_byte(const Seat& seat, const Gate& gate, int replicas) const {
  const double all = options_.micro_batches.total(&MicroBatches::bytes);
  const double sharing = gate.shared_card ? seat.per_card : 1;
  const double messages = std::min(options_.micro_batches.turns(replicas, &MicroBatches::bytes) * sharing, all);
  switch (options_.kind) {
    case LoadKind::step: return (messages - 1) * occupancy(1, gate.link);
    case LoadKind::steady: return messages * occupancy(1, gate.link);
    case LoadKind::period:
    case LoadKind::period_bound: return all * sharing / replicas * occupancy(1, gate.link);
    case LoadKind::step_bound: break;
  }
  return 0;
}

double ChainCost::stage(int begin, int end, DeviceSpan span) const {
  const Place& on = place(span);
  const double own = own_load(begin, end, span.count, on);
  if (!on.asks_devices) return own;
  // Grown to an end of the model, a stage is rid of the messages there; the least of all that contain it does
  // not fall when it grows.
  const int all = chain_.size();
  return std::min({own, own_load(0, end, span.count, on), own_load(begin, all, span.count, on),
                   own_load(0, all, span.count, on)});
}

double ChainCost::own_load(int begin, int end, int replicas, const Place& on) const {
  double load = own_load(begin, end, replicas, on, on.slowest);
  for (const Runner& runner : on.others) load = std::max(load, own_load(begin, end, replicas, on, runner));
  return load;
}

double ChainCost::own_load(int begin, int end, int replicas, const Place& on, const Runner& runner) const {
  const Chain& chain = *runner.chain;
  const PassTimes passes = chain.passes(begin, end, chain.crowding(begin, end, replicas));
  LoadTerms terms{.forward = passes.forward,
                  .backward = passes.backward,
                  .update = chain.stage_update(begin, end, sharded_ ? replicas : 0),
                  .fixed = chain.fixed,
                  .slowness = runner.slowness,
                  .turns = on.turns,
                  .replicas = replicas};
  const auto add = [&](const OperationCost& messages) {
    terms.messages.forward += on.messages * messages.forward;
    terms.messages.backward += on.messages * messages.backward;
  };
  if (begin > 0) add(on.least_received);
  if (end < chain.size()) add(on.least_sent);
  if (runner.again != nullptr) {
    const double largest = options_.micro_batches.most_time() / unit_;
    const double seconds = runner.again->seconds(begin, end, replicas);
    terms.again = runner.again->again(on.turns, largest) * seconds;
    terms.again_later = runner.again->again(std::max(0.0, on.turns - largest), largest) * seconds;
  }
  if (!on.all_reduce.empty()) terms.all_reduce = cheapest(on.all_reduce, chain.reduction(begin, end, sharded_));
  if (on.server)
    terms.all_reduce = server_wait(terms, *on.server, static_cast<double>(chain.trained(begin, end)));
  if (options_.kind == LoadKind::step_bound) {
    terms.awaited = terms.backward;
    terms.reach = chain.way(0, end);
    terms.whole = chain.way(0, chain.size());
  }
  const double overlap = on.server ? 0 : options_.all_reduce_overlap;
  return stage_load(options_.kind, terms, all_time(), overlap);
}

double ChainCost::all_time() const { return options_.micro_batches.total(&MicroBatches::time) / unit_; }

double ChainCost::server_wait(const LoadTerms& terms, const ServerWays& ways, double bytes) const {
  const bool in_turns = options_.kind == LoadKind::period || options_.kind == LoadKind::period_bound;
  if (!in_turns) return ways.together(bytes);
  const double compute =
      terms.forward + terms.fixed.forward + terms.backward + terms.fixed.backward + terms.update;
  return ways.in_turns(bytes, compute * terms.slowness);
}

double ChainCost::message_load(int boundary, int replicas, const Place& on, CutSide side) const {
  const Runner& runner = on.slowest;
  const Chain& chain = *runner.chain;
  const bool in = side == CutSide::in;
  const int begin = in ? boundary : boundary - 1, end = begin + 1;
  const Exchange& least = (in ? chain.least_in : chain.least_out)[at(boundary)];
  const PassTimes times = chain.passes(begin, end, {0, 0});
  LoadTerms terms{.forward = times.forward,
                  .backward = times.backward,
                  .fixed = chain.fixed,
                  .messages = handling(least, in ? on.seat->in.link : on.seat->out.link),
                  .slowness = runner.slowness,
                  .turns = on.turns,
                  .replicas = replicas};
  terms.awaited = terms.backward;
  terms.reach = chain.way(0, end);
  terms.whole = chain.way(0, chain.size());
  terms.messages.forward *= on.messages;
  terms.messages.backward *= on.messages;
  return stage_load(options_.kind, terms, all_time(), 0);
}

double ChainCost::cut(int boundary, DeviceSpan span, CutSide side) const {
  const auto k = at(boundary);
  const bool in = side == CutSide::in;
  const Place& on = place(span);
  const Exchange& least = in ? chain_.least_in[k] : chain_.least_out[k];
  const bool bound = options_.kind == LoadKind::period_bound;
  const double there = bound ? least.activation : chain_.cut_activation[k];
  const double back = bound ? least.gradient : chain_.cut_gradient[k];
  const bool half = (in ? on.seat->in : on.seat->out).link.duplex == Duplex::half;
  const double load = (half ? there + back : std::max(there, back)) * (in ? on.in : on.out);
  return on.asks_devices ? std::max(load, message_load(boundary, span.count, on, side)) : load;
}

bool ChainCost::fits(int begin, int end, DeviceSpan span) const {
  const Place& on = place(span);
  return !on.limited || on.memory->fits_at_least(begin, end, span.count, span.first);
}

bool ChainCost::considers(DeviceSpan span) const {
  return seats_->uniform || seats_->devices <= kEverySpan || seats_->at(span).even;
}

bool ChainCost::is_dominated(int replicas) const {
  const bool counts_turns = options_.kind == LoadKind::step || options_.kind == LoadKind::step_bound;
  if (!seats_->uniform || !counts_turns || replicas < 2 || sharded_) return false;
  const Place &fewer = place({0, replicas - 1}), &more = place({0, replicas});
  if (fewer.turns != more.turns || fewer.limited || more.limited) return false;
  if (fewer.slowest.slowness > more.slowest.slowness) return false;
  if (fewer.in > more.in || fewer.out > more.out || fewer.messages > more.messages) return false;
  const auto undercut = [&](const AllReduceForm& form) {
    return std::ranges::any_of(fewer.all_reduce,
                               [&](const AllReduceForm& other) { return other.undercuts(form); });
  };
  return fewer.all_reduce.empty() || std::ranges::all_of(more.all_reduce, undercut);
}

bool ChainCost::may_fall(int replicas) const {
  // With hardly more than a micro-batch per replica the backward only hides the all-reduce, so its factor in
  // stage_load() is negative.
  if (replicas < 2 || options_.all_reduce_overlap <= 0) return false;
  const double turns = options_.micro_batches.turns(replicas, &MicroBatches::time) / unit_;
  return (options_.kind == LoadKind::step ? turns - 1 : turns) < options_.all_reduce_overlap;
}

double ChainCost::base() const {
  if (options_.kind != LoadKind::step) return 0;
  return least_compute_.empty() ? chain_.stage_compute(0, chain_.size()) * least_slowness_
                                : least_compute_.back();
}

double ChainCost::passage(int boundary, DeviceSpan span) const {
  if (options_.kind != LoadKind::step || seats_->uniform) return 0;
  const auto& [chain, slowness, again] = place(span).slowest;
  const bool whole = boundary == chain_.size();  // with the last stage's fixed costs; fill() has the others'
  const double compute = whole ? chain->stage_compute(0, boundary) : chain->compute(0, boundary);
  return least_compute_.empty() ? compute * (slowness - least_slowness_)
                                : compute * slowness - least_compute_[at(boundary)];
}

double ChainCost::fill(int boundary, DeviceSpan span) const {
  if (options_.kind != LoadKind::step) return 0;
  const auto k = at(boundary);
  const Seat& seat = *place(span).seat;
  const Runner& slowest = place(span).slowest;
  const Exchange tensors{chain_.cut_activation[k], chain_.cut_gradient[k], chain_.cut_activations[k],
                         chain_.cut_gradients[k]};
  const OperationCost handled = handling(tensors, seat.out.link);
  return std::max(transfer_time(tensors.activation, tensors.activations, seat.out.link), 2 * handled.forward) +
         std::max(transfer_time(tensors.gradient, tensors.gradients, seat.out.link), 2 * handled.backward) +
         (slowest.chain->fixed.forward + slowest.chain->fixed.backward) * slowest.slowness;
}

int ChainCost::demand(DeviceSpan span, const Behind& behind) const {
  return place(span).memory->demand(span.count, behind);
}

bool ChainCost::fits(const StageRange& stage, DeviceSpan span, int demand) const {
  return place(span).memory->fits(stage, demand);
}

bool ChainCost::fits(const Partition& partition) const {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  std::map<const StageMemory*, std::vector<StageBytes>> stages;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const StageMemory* memory = place(spans[s]).memory;
    const auto [found, fresh] = stages.try_emplace(memory);
    if (fresh) found->second = memory->stages(partition);
    if (!memory->holds(found->second[s])) return false;
  }
  return true;
}

}  // namespace pp::plan
