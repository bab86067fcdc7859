#include "libplan/search/candidates/chain_case.h"

#include <algorithm>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/search/candidates/placed.h"
#include "libplan/search/exact/any_order.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

bool has_many(const PlanCase& one) {
  return is_large(one.chain.size(), static_cast<int>(one.devices.positions.size()));
}

}  // namespace

ChainCase::ChainCase(MachinePart& part, PlanCase one)
    : OpenCase(shared_work(one)),
      part_(part),
      one_(std::move(one)),
      memory_(one_.chain, one_.in_flight, one_.devices.limit),
      what_(search_case(one_, memory_, part.cluster, part.request)),
      costs_(what_, one_.space),
      schedules_{&one_.schedule} {
  // The whole machine's first layer order says it of all, and of all parts unless plans use all of one.
  const bool elsewhere = !part.whole && !part.request.even_nodes;
  if (elsewhere || (part.free_order && one_.order.layers != part.first_order)) proven_ = kInfinity;
}

bool ChainCase::refine(double best) {
  if (refined_ == Refined::no) {
    refined_ = Refined::in_part;
    bound_ = std::max(bound_, order_free_bound(what_, one_.space));
    if (!has_many(one_)) {
      proven_ = std::max(proven_, bound_);
    } else if (proven_ < kInfinity) {  // of equal replicas, which local moves may leave
      SearchSpace any = one_.space;
      any.devices = part_.devices();
      any.max_replicas = what_.synchronous ? what_.micro_batches.count : 0;
      proven_ = order_free_bound(what_, any);
    }
    return true;
  }
  if (refined_ == Refined::fully) return false;
  refine_fully(best);
  refined_ = Refined::fully;
  return true;
}

void ChainCase::refine_fully(double best) {
  const BottleneckTest test = test_bottleneck(one_.space, costs_.bound(), best);
  double flat = test.next;
  if (test.feasible()) {
    flat = bound_;
    if (!one_.space.aligned) {  // of which local moves say the bound
      least_ = search_bottleneck(one_.space, costs_.bound());
      flat = least_.value;
    } else {
      least_.partition = test.partition;
    }
  }
  const double everywhere =
      one_.space.aligned ? flat : ordered_bound(one_, part_.cluster, part_.request, flat, best);
  bound_ = std::max(bound_, everywhere);
  if (!part_.free_order && !has_many(one_)) proven_ = std::max(proven_, bound_);
}

bool ChainCase::can_prove() const { return one_.any_order != nullptr && !has_many(one_); }

void ChainCase::prove(double enough) {
  if (!can_prove() || proven_ >= enough) return;
  InFlight in_flight = one_.in_flight;
  in_flight.units = nullptr;  // which stand in an order
  const StageMemory memory(*one_.any_order, in_flight, one_.devices.limit);
  const SearchCase any{*one_.any_order,   *one_.any_order,     memory,
                       what_.synchronous, what_.micro_batches, what_.all_reduce_overlap,
                       what_.links,       what_.best_links,    what_.cluster};
  SearchSpace space = one_.space;
  space.layers = part_.lattice->size() - 1;
  space.cut_allowed.clear();
  proven_ = std::max(proven_, any_order_bound(*part_.lattice, space, bound_cost(any, space), proven_, enough));
}

MachinePart::Alike ChainCase::alike(bool listed, bool in_every_order) const {
  MachinePart::Alike alike{one_.in_flight.recompute, one_.in_flight.sharded,
                           one_.space.min_replicas == one_.space.max_replicas, listed};
  if (in_every_order) alike.search = one_.search, alike.sizes = one_.batch.sizes;
  return alike;
}

double ChainCase::below(double worth, bool listed) const {
  if (is_small(one_.chain.size(), part_.devices())) return worth;
  for (const bool in_every_order : {false, true}) {
    const auto least = part_.objectives.find(alike(listed, in_every_order));
    if (least != part_.objectives.end())
      worth = std::min(worth, (in_every_order ? 1 - kRounding : kNear) * least->second);
  }
  return worth;
}

void ChainCase::include(double objective, bool listed) {
  for (const bool in_every_order : {false, true}) {
    double& least = part_.objectives.try_emplace(alike(listed, in_every_order), kInfinity).first->second;
    least = std::min(least, objective);
  }
}

std::vector<Finalist> ChainCase::next(const Worth& worth) {
  if (looked_ == Looked::everywhere) return {};
  if (looked_ == Looked::at_points) {
    looked_ = Looked::everywhere;
    return misjudged(worth);
  }
  std::vector<Finalist> found;
  const std::vector<DeviceLists::List>& lists = part_.lists.of(one_);
  const bool first = std::exchange(looked_, Looked::without_lists) == Looked::no;
  if (first) {
    found = without_lists(worth);
    if (!one_.space.aligned && !lists.empty()) listed_ = listed_spaces(one_);
    least_listed_.assign(lists.size(), kInfinity);
    most_listed_ = below(worth.listed, true);
  }
  // Lists of small models are quickly searched, others one by one.
  const std::size_t turns = listed_.size() * lists.size();
  const bool quickly = is_small(one_.chain.size(), part_.devices());
  for (std::size_t end = quickly ? turns : first ? 0 : turn_ + 1; turn_ < end; ++turn_)
    std::ranges::move(on_list(turn_ % lists.size(), listed_[turn_ / lists.size()], worth),
                      std::back_inserter(found));
  found_ |= !found.empty();
  if (turn_ < turns) return found;
  looked_ = found_ ? Looked::at_points : Looked::everywhere;
  if (turns > 0) include(*std::ranges::min_element(least_listed_), true);
  return found;
}

std::vector<Finalist> ChainCase::without_lists(const Worth& worth) {
  if (!least_.feasible() && bound_ > worth.bound) return {};
  const Partition bound_plan = one_.space.aligned ? Partition() : least_.partition;
  std::vector<Finalist> found =
      finalists(find_candidates(what_, one_.space, costs_, bound_plan, below(worth.flat, false)));
  for (const Finalist& finalist : found) include(finalist.estimate, false);
  return found;
}

std::vector<Finalist> ChainCase::on_list(std::size_t list, const SearchSpace& space, const Worth& worth) {
  std::vector<Finalist> found;
  double& least = least_listed_[list];
  const double near = std::min({most_listed_, worth.listed, kNear * least});
  for (const auto& [partition, devices, estimate] :
       ordered_candidates(one_, part_.cluster, part_.request, part_.lists.of(one_)[list], space, near)) {
    add(found, {partition, estimate, bound_, Origin::device_list}, devices);
    least = std::min(least, estimate);
  }
  return found;
}

std::vector<Finalist> ChainCase::misjudged(const Worth& worth) {
  const bool whole = part_.whole && one_.devices.positions.size() == part_.cluster.devices.size();
  if (!whole || !least_.feasible()) return {};
  return finalists(find_misjudged(what_, one_.space, costs_, worth.bound, worth.flat));
}

std::vector<Finalist> ChainCase::quick(Quick how, const StopSign& stop) {
  SearchSpace space = one_.space;
  space.stop = stop;
  return finalists(how == Quick::seed ? find_seeds(what_, space, costs_) : find_anything(what_, space, costs_));
}

void ChainCase::add(std::vector<Finalist>& found, const Candidate& candidate, std::vector<int> devices) const {
  for (const ScheduleRow* schedule : schedules_) {
    Finalist& finalist = found.emplace_back(finalist_of(one_, candidate));
    finalist.schedule = schedule;
    finalist.devices = devices;
  }
}

std::vector<Finalist> ChainCase::finalists(const std::vector<Candidate>& candidates) const {
  std::vector<Finalist> found;
  for (const Candidate& candidate : candidates)
    add(found, candidate, worker_positions(one_, part_.cluster, part_.request, candidate.partition));
  return found;
}

}  // namespace pp::plan
