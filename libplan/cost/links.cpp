#include "libplan/cost/links.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

using Levels = std::span<const Level>;
using LinkOf = Link (*)(const Level&);

Link slowest_of(Levels levels, LinkOf link_of_level) {
  if (levels.empty()) return {};
  Link slowest = link_of_level(levels.front());
  for (const Level& level : levels) {
    const Link link = link_of_level(level);
    slowest.bandwidth = std::min(slowest.bandwidth, link.bandwidth);
    slowest.latency = std::max(slowest.latency, link.latency);
    slowest.message_cost = std::max(slowest.message_cost, link.message_cost);
    slowest.overlap = std::min(slowest.overlap, link.overlap);
    if (link.duplex == Duplex::half) slowest.duplex = Duplex::half;
    if (link.beyond.value == 0) continue;
    const bool first = slowest.beyond.value == 0;
    slowest.cached = first ? link.cached : std::min(slowest.cached, link.cached);
    slowest.beyond = first ? link.beyond : std::min(slowest.beyond, link.beyond);
  }
  return slowest;
}

Link fastest_of(Levels levels, LinkOf link_of_level) {
  if (levels.empty()) return {};
  Link fastest = link_of_level(levels.front());
  for (const Level& level : levels) {
    const Link link = link_of_level(level);
    fastest.bandwidth = std::max(fastest.bandwidth, link.bandwidth);
    fastest.latency = std::min(fastest.latency, link.latency);
    fastest.message_cost = std::min(fastest.message_cost, link.message_cost);
    fastest.overlap = std::max(fastest.overlap, link.overlap);
    if (link.duplex == Duplex::full) fastest.duplex = Duplex::full;
    const bool alike = fastest.beyond.value == 0 || link.beyond.value == 0;
    fastest.cached = alike ? Bytes(0) : std::max(fastest.cached, link.cached);
    fastest.beyond = alike ? BytesPerSecond(0) : std::max(fastest.beyond, link.beyond);
  }
  return fastest;
}

/// The innermost level whose groups of consecutive devices hold both; null for one device, and without levels.
const Level* level_between(const Cluster& cluster, int first, int second) {
  if (first == second || cluster.levels.empty()) return nullptr;
  const int one = slot_of(cluster, first), other = slot_of(cluster, second);
  for (const Level& level : cluster.levels) {
    if (one / level.devices == other / level.devices) return &level;
  }
  return nullptr;
}

/// The slowest of the links for sums among `devices`; of equally fast ones the largest latency.
Link slowest_among(const Cluster& cluster, std::span<const int> devices) {
  const auto link = [&](int a, int b) {
    const Level* level = level_between(cluster, a, b);
    return level != nullptr ? sum_link_of(*level) : link_between(cluster, a, b);
  };
  Link slowest = link(devices.front(), devices.back());
  const auto include = [&](int a, int b) {
    const Link other = link(a, b);
    if (is_better(slowest, other)) slowest = other;
  };
  // Sorted, neighbours are in different groups of a level wherever two of its devices are.
  std::vector<int> sorted(devices.begin(), devices.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 1; i < sorted.size(); ++i) include(sorted[i - 1], sorted[i]);
  return slowest;
}

/// `passes` messages one after the other, and `share` of all bytes over the link.
AllReduceForm form_of(double passes, double share, const Link& link) {
  const double fixed = passes * link.latency.count();
  double per_byte = link.bandwidth.value == 0 ? 0 : share / link.bandwidth.value;
  if (link.bucket > Bytes(0)) per_byte += fixed / static_cast<double>(link.bucket.value);
  return {fixed,
          per_byte,
          {AllReduceForm::Excess{static_cast<double>(link.cached.value), share * excess_per_byte(link)}}};
}

/// Which cells each row or column has.
using Lines = std::vector<std::vector<std::size_t>>;

/// What stands for an even number of values.
enum class Middle {
  nearer_to_promise,  ///< that of the two in the middle which is nearer to 0
  mean                ///< of these two
};

/// 0 for none. Orders its copy.
double median(std::vector<double> values, Middle of_two) {
  if (values.empty()) return 0;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, half);
  if (values.size() % 2 == 1) return *half;
  const double below = *std::max_element(values.begin(), half);
  if (of_two == Middle::mean) return (below + *half) / 2;
  return std::abs(below) <= std::abs(*half) ? below : *half;
}

double lower_median(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, half);
  return *half;
}

/// Takes the median of each line off its cells and adds it to the line's effect; the largest one.
double sweep(const Lines& lines, Middle of_two, std::vector<double>& rest, std::vector<double>& effects) {
  double largest = 0;
  for (std::size_t line = 0; line < lines.size(); ++line) {
    std::vector<double> values;
    for (const std::size_t cell : lines[line]) values.push_back(rest[cell]);
    const double effect = median(std::move(values), of_two);
    for (const std::size_t cell : lines[line]) rest[cell] -= effect;
    effects[line] += effect;
    largest = std::max(largest, std::abs(effect));
  }
  return largest;
}

double sum_of(const std::vector<double>& rest) {
  return std::accumulate(rest.begin(), rest.end(), 0.0,
                         [](double sum, double one) { return sum + std::abs(one); });
}

/// Logarithms of the factors, as medians leave them.
TwoWayFactors fit(const TwoWayTable& table) {
  constexpr int kSweeps = 100;
  constexpr double kNothing = 1e-9, kLess = 1e-6;
  TwoWayFactors factors{std::vector<double>(static_cast<std::size_t>(table.rows)),
                        std::vector<double>(table.devices.size())};
  Lines by_row(factors.rows.size()), by_column(factors.columns.size());
  std::vector<double> rest;
  for (const TwoWayCell& cell : table.cells) {
    by_row[at(cell.row)].push_back(rest.size());
    by_column[at(cell.column)].push_back(rest.size());
    rest.push_back(std::log(cell.ratio));
  }
  const auto polish = [&](Middle of_two) {
    for (int i = 0; i < kSweeps; ++i) {
      const double columns = sweep(by_column, of_two, rest, factors.columns);
      if (std::max(columns, sweep(by_row, of_two, rest, factors.rows)) < kNothing) break;
    }
    return sum_of(rest);
  };
  const double near_promise = polish(Middle::nearer_to_promise);
  const TwoWayFactors believed = factors;
  return polish(Middle::mean) < near_promise - kLess ? factors : believed;
}

/// Columns that share rows, directly or through others.
class Groups {
 public:
  explicit Groups(const TwoWayTable& table)
      : parent_(static_cast<std::size_t>(table.rows) + table.devices.size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (const TwoWayCell& cell : table.cells)
      parent_[root(at(cell.row))] = root(static_cast<std::size_t>(table.rows) + at(cell.column));
  }
  std::size_t root(std::size_t line) const {
    while (parent_[line] != line) line = parent_[line];
    return line;
  }

 private:
  std::vector<std::size_t> parent_;
};

/// What the columns of a group have in common.
struct Shared {
  std::vector<double> columns;
  std::set<int> devices;
  double level = 0;
};

}  // namespace

bool AllReduceForm::undercuts(const AllReduceForm& other) const {
  const auto no_later = [](const Excess& mine, const Excess& theirs) {
    return mine.per_byte == 0 || (mine.from >= theirs.from && mine.per_byte <= theirs.per_byte);
  };
  return halves >= other.halves && fixed <= other.fixed && per_byte <= other.per_byte &&
         std::ranges::equal(excess, other.excess, no_later);
}

AllReduceForm ring_all_reduce(int replicas, const Link& link) {
  const double steps = 2.0 * (replicas - 1);
  return form_of(steps, steps / replicas, link);
}

AllReduceForm tree_all_reduce(int replicas, const Link& link) {
  if (replicas == 1) return {};
  AllReduceForm form = form_of(2.0 * std::bit_width(static_cast<unsigned>(replicas - 1)), 2, link);
  form.halves = false;
  return form;
}

AllReduceForm two_level_all_reduce(int nodes, int per_node, int cards, const Link& inside,
                                   const Link& between) {
  const AllReduceForm within = ring_all_reduce(per_node, inside), across = ring_all_reduce(nodes, between);
  const double shared = std::min(per_node, cards);  // so many cards each carry a part of the bytes
  const auto [from, per_byte] = across.excess.front();
  return {within.fixed + across.fixed,
          within.per_byte + across.per_byte / shared,
          {within.excess.front(), {from * shared, per_byte / shared}}};
}

Link link_of(const Level& level) {
  return {level.bandwidth, level.latency, level.message_cost, level.overlap, level.duplex};
}

// A ring of n takes 2(n-1) latencies and moves 2(n-1)/n of the bytes.
Link sum_link_of(const Level& level) {
  Link link = link_of(level);
  link.bucket = level.bucket;
  if (!level.all_reduce || level.devices < 2) return link;
  const double steps = 2.0 * (level.devices - 1);
  link.latency = level.all_reduce->latency / steps;
  const double share = steps / level.devices;
  link.bandwidth = BytesPerSecond(share * level.all_reduce->bandwidth.value);
  link.cached = level.all_reduce->cached;
  link.beyond = BytesPerSecond(share * level.all_reduce->beyond.value);
  return link;
}

Link link_between(const Cluster& cluster, int first, int second) {
  if (first == second) return {};
  const Level* level = level_between(cluster, first, second);
  return level != nullptr ? link_of(*level) : slowest_link(cluster);
}

Link slowest_link(const Cluster& cluster) { return slowest_of(cluster.levels, link_of); }
Link fastest_link(const Cluster& cluster) { return fastest_of(cluster.levels, link_of); }
Links slowest_links(const Cluster& cluster) {
  return {slowest_of(cluster.levels, link_of), slowest_of(cluster.levels, sum_link_of)};
}
Links fastest_links(const Cluster& cluster) {
  return {fastest_of(cluster.levels, link_of), fastest_of(cluster.levels, sum_link_of)};
}

std::vector<AllReduceForm> all_reduce_forms(const Cluster& cluster, std::span<const int> devices) {
  const int replicas = static_cast<int>(devices.size());
  if (replicas == 1 || cluster.levels.empty()) return {};
  const Link slowest = slowest_among(cluster, devices);
  std::vector<AllReduceForm> forms{ring_all_reduce(replicas, slowest), tree_all_reduce(replicas, slowest)};
  const Level& inner = cluster.levels.front();
  struct Group {
    int devices = 0;
    std::set<int> cards;
  };
  std::map<int, Group> groups;
  for (const int device : devices) {
    const int slot = slot_of(cluster, device);
    Group& group = groups[slot / inner.devices];
    ++group.devices;
    group.cards.insert(slot / (inner.devices / inner.cards));
  }
  const Group& first = groups.begin()->second;
  const bool even = std::ranges::all_of(groups, [&](const auto& g) {
    return g.second.devices == first.devices && g.second.cards.size() == first.cards.size();
  });
  if (even && first.devices > 1 && groups.size() > 1) {
    forms.push_back(two_level_all_reduce(static_cast<int>(groups.size()), first.devices,
                                         static_cast<int>(first.cards.size()), sum_link_of(inner), slowest));
  }
  return forms;
}

std::vector<AllReduceForm> least_all_reduce_forms(const Cluster& cluster, int replicas) {
  if (replicas == 1 || cluster.levels.empty()) return {};
  // So many devices cross at least the innermost level that holds them.
  const Levels levels(cluster.levels);
  const auto holds = [&](const Level& level) { return level.devices >= replicas; };
  const auto inside = std::ranges::find_if(levels.first(levels.size() - 1), holds) - levels.begin();
  const Link fastest = fastest_of(levels.subspan(at(inside)), sum_link_of);
  std::vector<AllReduceForm> forms{ring_all_reduce(replicas, fastest), tree_all_reduce(replicas, fastest)};
  const Level& inner = cluster.levels.front();
  const Levels outside = levels.subspan(1);
  for (int group = 2; group <= inner.devices && group < replicas && !outside.empty(); ++group) {
    if (replicas % group == 0) {
      forms.push_back(two_level_all_reduce(replicas / group, group, inner.cards, sum_link_of(inner),
                                           fastest_of(outside, sum_link_of)));
    }
  }
  return forms;
}

Seconds all_reduce_time(const Cluster& cluster, std::span<const int> devices, const Reduction& reduction) {
  return Seconds(cheapest(all_reduce_forms(cluster, devices), reduction));
}

ServerWays server_ways(const Cluster& cluster, std::span<const int> devices) {
  ServerWays ways;
  for (const int device : devices.subspan(1)) {
    const Link link = link_between(cluster, devices.front(), device);
    ways.latency = std::max(ways.latency, link.latency.count());
    ways.slowest = std::max(ways.slowest, occupancy(1, link));
    ways.all += occupancy(1, link);
    ways.half = ways.half || link.duplex == Duplex::half;
  }
  return ways;
}

ServerWays server_ways(int replicas, const Link& link) {
  if (replicas == 1) return {};
  const double per_byte = occupancy(1, link);
  return {link.latency.count(), per_byte, (replicas - 1) * per_byte, link.duplex == Duplex::half};
}

NetworkCards network_cards(const Cluster& cluster) {
  if (cluster.levels.size() < 2) return {};
  const Level& inner = cluster.levels.front();
  NetworkCards cards{.of = {}, .per_group = inner.cards};
  for (int device = 0; device < static_cast<int>(cluster.devices.size()); ++device)
    cards.of.push_back(slot_of(cluster, device) / (inner.devices / inner.cards));
  return cards;
}

TwoWayFactors two_way_factors(const TwoWayTable& table) {
  const auto rows = static_cast<std::size_t>(table.rows);
  TwoWayFactors factors = fit(table);
  const Groups groups(table);
  std::vector<Shared> shared(rows + table.devices.size());
  for (std::size_t c = 0; c < table.devices.size(); ++c) {
    if (std::ranges::count(table.cells, static_cast<int>(c), &TwoWayCell::column) == 0) continue;
    Shared& group = shared[groups.root(rows + c)];
    group.columns.push_back(factors.columns[c]);
    group.devices.insert(table.devices[c]);
  }
  std::vector<double> levels;
  for (Shared& group : shared) {
    if (group.columns.empty()) continue;
    group.level = lower_median(group.columns);
    levels.insert(levels.end(), group.columns.size(), group.level);
  }
  const double common = median(std::move(levels), Middle::nearer_to_promise);
  for (Shared& group : shared) {
    const bool alone = group.devices.size() == 1;
    if (alone && std::abs(group.level - common) > std::log(kUsualError)) group.level = common;
  }
  for (std::size_t r = 0; r < rows; ++r)
    factors.rows[r] = std::exp(factors.rows[r] + shared[groups.root(r)].level);
  for (std::size_t c = 0; c < table.devices.size(); ++c)
    factors.columns[c] = std::exp(factors.columns[c] - shared[groups.root(rows + c)].level);
  return factors;
}

}  // namespace pp::plan
