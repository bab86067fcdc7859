#include "libplan/cost/seats.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Of some devices behind network cards.
struct CardUse {
  int most = 1;      ///< behind one card; 1 where none is shared
  bool even = true;  ///< as many of every group that is used
};
CardUse card_use(const NetworkCards& cards, std::span<const int> positions) {
  if (cards.of.empty()) return {};
  std::map<int, int> counts, groups;
  int most = 0, largest = 0;
  for (const int position : positions) {
    most = std::max(most, ++counts[cards.of[at(position)]]);
    largest = std::max(largest, ++groups[cards.group(position)]);
  }
  return {most, at(largest) * groups.size() == positions.size()};
}

class ListedSeats {
 public:
  ListedSeats(const OrderedDevices& devices, double speed, std::int64_t context, Neighbours neighbours)
      : devices_(devices),
        speed_(speed),
        context_(context),
        neighbours_(neighbours),
        cards_(network_cards(devices.cluster)),
        all_(hand_over(devices.cluster, devices.positions)),
        size_(static_cast<int>(devices.positions.size())) {}

  Seat make(DeviceSpan span) const {
    const auto positions = devices_.positions.subspan(at(span.first), at(span.count));
    Seat seat{.kinds = {},
              .all_reduce = all_reduce_forms(devices_.cluster, positions),
              .server = server_ways(devices_.cluster, positions),
              .limit = limit(span)};
    for (const int position : positions) {
      const Device& device = devices_.cluster.devices[at(position)];
      auto kind = std::ranges::find(seat.kinds, device.profile, &KindSeat::kind);
      if (kind == seat.kinds.end()) kind = seat.kinds.insert(kind, {device.profile, 0});
      kind->slowness = std::max(kind->slowness, speed_ / device.speed);
    }
    const CardUse use = card_use(cards_, positions);
    seat.per_card = use.most;
    seat.even = use.even;
    if (span.first > 0) seat.out = gate(positions, span.first - 1);
    if (span.end() < size_) seat.in = gate(positions, span.end());
    return seat;
  }

 private:
  /// The best link from one of `positions` to the device at `next` in the list.
  Gate gate(std::span<const int> positions, int next) const {
    Gate best;
    const int other = devices_.positions[at(next)];
    for (const int position : positions) {
      const Link link = link_between(devices_.cluster, position, other);
      if (position != positions.front() && !is_better(link, best.link)) continue;
      best = {link, cards_.between(position, other)};
    }
    return best;
  }

  MemoryLimit limit(DeviceSpan span) const {
    const auto bytes = devices_.bytes.subspan(at(span.first), at(span.count));
    MemoryLimit limit{*std::ranges::min_element(bytes), context_, all_, all_};
    if (neighbours_ == Neighbours::all_devices) return limit;
    const auto with_next = [&](int first, int end) {
      return hand_over(devices_.cluster, devices_.positions.subspan(at(first), at(end - first)));
    };
    limit.in = with_next(span.first, std::min(span.end() + 1, size_));
    limit.out = with_next(std::max(span.first - 1, 0), span.end());
    return limit;
  }

  const OrderedDevices& devices_;
  double speed_;
  std::int64_t context_;
  Neighbours neighbours_;
  NetworkCards cards_;
  HandOver all_;
  int size_;
};

}  // namespace

Seats equal_seats(int devices, const Links& links, const MemoryLimit& limit, const Cluster* least) {
  Seats seats{.devices = devices};
  for (int q = 1; q <= devices; ++q) {
    Seat& seat = seats.all.emplace_back();
    seat.in.link = seat.out.link = links.messages;
    seat.limit = limit;
    seat.server = server_ways(q, links.messages);
    if (least != nullptr) {
      seat.all_reduce = least_all_reduce_forms(*least, q);
    } else if (q > 1) {
      seat.all_reduce = {ring_all_reduce(q, links.sums), tree_all_reduce(q, links.sums)};
    }
  }
  return seats;
}

void align(Seats& seats, const Cluster& cluster, int replicas) {
  std::vector<int> positions(at(replicas));
  std::iota(positions.begin(), positions.end(), 0);
  Seat& seat = seats.all[seats.index({0, replicas})];
  const CardUse use = card_use(network_cards(cluster), positions);
  seat.all_reduce = all_reduce_forms(cluster, positions);
  seat.server = server_ways(cluster, positions);
  seat.per_card = use.most;
  seat.even = use.even;
  seat.in.shared_card = seat.out.shared_card = use.most > 1;
}

Seats listed_seats(const OrderedDevices& devices, double speed, std::int64_t context, Neighbours neighbours) {
  const int size = static_cast<int>(devices.positions.size());
  Seats seats{.uniform = false, .devices = size};
  seats.all.resize(at(size) * at(size));
  const ListedSeats make(devices, speed, context, neighbours);
  for (int first = 0; first < size; ++first) {
    for (int count = 1; count <= size - first; ++count)
      seats.all[seats.index({first, count})] = make.make({first, count});
  }
  return seats;
}

Seats best_seats(const OrderedDevices& devices, std::vector<double> slowness, std::int64_t context) {
  std::vector<std::int64_t> sizes(devices.bytes.begin(), devices.bytes.end());
  std::ranges::sort(slowness);
  std::ranges::sort(sizes, std::greater<>());
  Seats seats{.devices = static_cast<int>(slowness.size())};
  for (std::size_t q = 0; q < slowness.size(); ++q) {
    Seat& seat = seats.all.emplace_back();
    seat.kinds.front().slowness = slowness[q];
    seat.in.link = seat.out.link = fastest_link(devices.cluster);
    seat.all_reduce = least_all_reduce_forms(devices.cluster, static_cast<int>(q) + 1);
    seat.server = server_ways(static_cast<int>(q) + 1, fastest_link(devices.cluster));
    seat.limit = {.bytes = sizes[q], .context = context};
  }
  return seats;
}

}  // namespace pp::plan
