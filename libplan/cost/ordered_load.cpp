#include "libplan/cost/ordered_load.h"

#include <algorithm>
#include <map>

namespace pp::plan {
namespace {

constexpr int kEverySpan = 16;  ///< devices; their spans are quadratic in them
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

/// Of some devices behind network cards.
struct CardUse {
  int most = 1;      ///< behind one card; 1 where none is shared
  bool even = true;  ///< as many behind every card that is used
};
CardUse card_use(const std::vector<int>& cards, std::span<const int> positions) {
  if (cards.empty()) return {};
  std::map<int, int> counts;
  int most = 0;
  for (const int position : positions) most = std::max(most, ++counts[cards[index_of(position)]]);
  return {most, index_of(most) * counts.size() == positions.size()};
}

}  // namespace

std::vector<DeviceSpan> spans_of(const Partition& partition) {
  std::vector<DeviceSpan> spans(partition.size());
  int first = 0;
  for (std::size_t s = partition.size(); s-- > 0;) {
    spans[s] = {first, partition[s].replicas};
    first += partition[s].replicas;
  }
  return spans;
}

OrderedLoad::OrderedLoad(const Chain& chain, const OrderedDevices& devices, const OrderedOptions& options,
                         const InFlight& in_flight, std::int64_t context)
    : chain_(chain), options_(options), devices_(static_cast<int>(devices.positions.size())) {
  const std::vector<int> cards = shared_cards(devices.cluster);
  const HandOver all = hand_over(devices.cluster, devices.positions);
  spans_.resize(index_of(devices_) * index_of(devices_));
  for (int first = 0; first < devices_; ++first) {
    for (int count = 1; count <= devices_ - first; ++count) {
      Span& span = spans_[index_of(first * devices_ + count - 1)];
      span = make_span(devices, cards, {first, count});
      MemoryLimit limit = make_limit(devices, {first, count}, all);
      limit.context = context;
      const Key key(limit.bytes, limit.in, limit.out);
      span.memory = &memories_.try_emplace(key, chain, in_flight, limit).first->second;
      span.again = &again_.try_emplace(key, chain, span.memory, options.recompute).first->second;
    }
    least_slowness_ = std::min(least_slowness_, at({first, 1}).slowness);
  }
}

MemoryLimit OrderedLoad::make_limit(const OrderedDevices& devices, DeviceSpan range, HandOver all) const {
  const auto bytes = devices.bytes.subspan(index_of(range.first), index_of(range.count));
  MemoryLimit limit{.bytes = *std::ranges::min_element(bytes), .in = all, .out = all};
  if (options_.neighbours == Neighbours::all_devices) return limit;
  const auto with_next = [&](int first, int end) {
    return hand_over(devices.cluster, devices.positions.subspan(index_of(first), index_of(end - first)));
  };
  limit.in = with_next(range.first, std::min(range.end() + 1, devices_));
  limit.out = with_next(std::max(range.first - 1, 0), range.end());
  return limit;
}

OrderedLoad::Span OrderedLoad::make_span(const OrderedDevices& devices, const std::vector<int>& cards,
                                         DeviceSpan range) const {
  const auto positions = devices.positions.subspan(index_of(range.first), index_of(range.count));
  Span span;
  span.slowness = 0;
  for (const int position : positions)
    span.slowness =
        std::max(span.slowness, options_.chain_speed / devices.cluster.devices[index_of(position)].speed);
  span.micro_batches = (options_.micro_batches + range.count - 1) / range.count;
  const CardUse use = card_use(cards, positions);
  span.per_card = use.most;
  span.even = use.even;
  const auto gate = [&](int next) {
    Gate best;
    for (const int position : positions) {
      const int other = devices.positions[index_of(next)];
      const Link link = link_between(devices.cluster, position, other);
      const bool better =
          std::pair(link.bandwidth, -link.latency) > std::pair(best.link.bandwidth, -best.link.latency);
      if (position != positions.front() && !better) continue;
      best = {link, !cards.empty() && cards[index_of(position)] != cards[index_of(other)]};
    }
    return best;
  };
  if (range.first > 0) span.out = gate(range.first - 1);
  if (range.end() < devices_) span.in = gate(range.end());
  span.all_reduce = all_reduce_forms(devices.cluster, positions);
  return span;
}

const OrderedLoad::Span& OrderedLoad::at(DeviceSpan span) const {
  return spans_[index_of(span.first * devices_ + span.count - 1)];
}

/// Of `micro_batches` per step, those that count.
double OrderedLoad::turns(double micro_batches) const {
  return options_.kind == OrderedKind::step ? micro_batches - 1 : micro_batches;
}

double OrderedLoad::stage(int begin, int end, DeviceSpan span) const {
  const Span& on = at(span);
  const double f = chain_.stage_forward(begin, end) * on.slowness;
  const double b = chain_.stage_backward(begin, end) * on.slowness;
  const double update = chain_.stage_update(begin, end) * on.slowness;
  const double all_reduce = cheapest(on.all_reduce, chain_.sum(chain_.weights, begin, end));
  const double overlap = options_.all_reduce_overlap;
  const double n = turns(on.micro_batches);
  const double again =
      on.micro_batches * on.again->seconds(begin, end, span.count, on.micro_batches) * on.slowness;
  const double load = std::max(n * (f + b), n * f + (n - overlap) * b + all_reduce) + again + update;
  return options_.kind == OrderedKind::period ? load * options_.micro_batches / (n * span.count) : load;
}

double OrderedLoad::cut(int boundary, DeviceSpan span, CutSide side) const {
  const Span& on = at(span);
  const Gate& gate = side == CutSide::in ? on.in : on.out;
  const double bytes =
      std::max(chain_.cut_activation[index_of(boundary)], chain_.cut_gradient[index_of(boundary)]);
  const double sharing = gate.shared_card ? on.per_card : 1;
  const double time = occupancy(bytes, gate.link);
  if (options_.kind == OrderedKind::period) return options_.micro_batches * time * sharing / span.count;
  return turns(std::min<double>(on.micro_batches * sharing, options_.micro_batches)) * time;
}

bool OrderedLoad::fits(int begin, int end, DeviceSpan span) const {
  const StageMemory& memory = *at(span).memory;
  return memory.limit() == kNoLimit || memory.fits_at_least(begin, end, span.count, span.first);
}

bool OrderedLoad::considers(DeviceSpan span) const { return devices_ <= kEverySpan || at(span).even; }

double OrderedLoad::passage(int boundary, DeviceSpan span) const {
  if (options_.kind != OrderedKind::step) return 0;
  const bool whole = boundary == chain_.size();  // with the last stage's fixed costs; fill() has the others'
  return (whole ? chain_.stage_compute(0, boundary) : chain_.compute(0, boundary)) * at(span).slowness;
}

double OrderedLoad::fill(int boundary, DeviceSpan span) const {
  if (options_.kind != OrderedKind::step) return 0;
  const auto k = index_of(boundary);
  const Link& link = at(span).out.link;
  return transfer_time(chain_.cut_activation[k], chain_.cut_activations[k], link) +
         transfer_time(chain_.cut_gradient[k], chain_.cut_gradients[k], link) +
         (chain_.fixed.forward + chain_.fixed.backward) * at(span).slowness;
}

int OrderedLoad::demand(DeviceSpan span, const Behind& behind) const {
  return at(span).memory->demand(span.count, behind);
}

bool OrderedLoad::fits(const StageRange& stage, DeviceSpan span, int demand) const {
  return at(span).memory->fits(stage, demand);
}

bool OrderedLoad::fits(const Partition& partition) const {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  std::map<const StageMemory*, std::vector<StageBytes>> stages;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const StageMemory* memory = at(spans[s]).memory;
    const auto [found, fresh] = stages.try_emplace(memory);
    if (fresh) found->second = memory->stages(partition);
    if (!memory->holds(found->second[s])) return false;
  }
  return true;
}

double OrderedLoad::least_passage() const { return chain_.stage_compute(0, chain_.size()) * least_slowness_; }

int OrderedLoad::scan_replicas() const {
  // As for ChainLoad: with one micro-batch per replica the backward only hides the all-reduce.
  const bool negative = options_.kind == OrderedKind::step && options_.all_reduce_overlap > 0;
  return negative && options_.micro_batches > 1 && options_.micro_batches <= devices_ ? options_.micro_batches
                                                                                      : 0;
}

}  // namespace pp::plan
