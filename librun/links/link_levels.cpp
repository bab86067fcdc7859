#include "librun/links/link_levels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "libplan/cost/links.h"
#include "librun/links/link_fit.h"

namespace pp::run {

namespace {

using Costs = std::vector<std::vector<double>>;
using Groups = std::vector<std::vector<int>>;

/// Links up to each of these are one level or more; the last is the largest cost of all.
std::vector<double> cuts(const Costs& cost, double factor) {
  std::vector<double> sorted;
  for (std::size_t i = 0; i < cost.size(); ++i) {
    for (std::size_t j = i + 1; j < cost.size(); ++j) sorted.push_back(cost[i][j]);
  }
  std::ranges::sort(sorted);
  std::vector<double> cuts;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    if (k + 1 == sorted.size() || sorted[k + 1] >= factor * sorted[k]) cuts.push_back(sorted[k]);
  }
  return cuts;
}

/// Each device that is not in a group yet begins one, of all that its links up to `cut` reach.
Groups groups_within(const Costs& cost, double cut) {
  Groups groups;
  std::vector<bool> placed(cost.size(), false);
  for (std::size_t i = 0; i < cost.size(); ++i) {
    if (placed[i]) continue;
    std::vector<int>& group = groups.emplace_back();
    for (std::size_t j = i; j < cost.size(); ++j) {
      if (j != i && (placed[j] || cost[i][j] > cut)) continue;
      placed[j] = true;
      group.push_back(static_cast<int>(j));
    }
  }
  return groups;
}

std::vector<std::size_t> group_of_each(const Groups& groups, std::size_t devices) {
  std::vector<std::size_t> group_of(devices);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const int device : groups[g]) group_of[static_cast<std::size_t>(device)] = g;
  }
  return group_of;
}

/// Equal sizes, and exactly the links inside groups cost no more than the cut.
bool is_level(const Groups& groups, const Costs& cost, double cut) {
  const std::size_t size = groups.front().size();
  if (size < 2 || std::ranges::any_of(groups, [&](const auto& group) { return group.size() != size; }))
    return false;
  const std::vector<std::size_t> group_of = group_of_each(groups, cost.size());
  for (std::size_t i = 0; i < cost.size(); ++i) {
    for (std::size_t j = i + 1; j < cost.size(); ++j) {
      if ((cost[i][j] <= cut) != (group_of[i] == group_of[j])) return false;
    }
  }
  return true;
}

/// `order` with the members of each group together, groups by their first member; groups of the level inside
/// stay together, since all of one have the same group.
std::vector<int> regrouped(const std::vector<int>& order, const Groups& groups) {
  const std::vector<std::size_t> group_of = group_of_each(groups, order.size());
  std::vector<int> sorted = order;
  std::ranges::stable_sort(sorted, {}, [&](int device) { return group_of[static_cast<std::size_t>(device)]; });
  return sorted;
}

/// The innermost level whose groups of consecutive positions hold both.
std::size_t level_of(const DeviceGroups& groups, int first, int second) {
  std::size_t level = 0;
  while (first / groups.sizes[level] != second / groups.sizes[level]) ++level;
  return level;
}

/// One sample per size from those of several pairs.
std::vector<LinkSample> pooled(std::span<const MeasuredPair> pairs) {
  std::map<Bytes, std::vector<TimeStat>> by_size;
  for (const MeasuredPair& pair : pairs) {
    for (const LinkSample& sample : pair.samples) by_size[sample.size].push_back(sample.time);
  }
  std::vector<LinkSample> samples;
  for (auto& [size, times] : by_size) {
    std::ranges::sort(times, {}, &TimeStat::median);
    TimeStat time = times[times.size() / 2];
    time.samples = 0;
    for (const TimeStat& one : times) {
      time.low = std::min(time.low, one.low);
      time.high = std::max(time.high, one.high);
      time.samples += one.samples;
    }
    samples.push_back({size, time});
  }
  return samples;
}

std::size_t count_nodes(std::span<const Device> devices) {
  std::set<std::string> nodes;
  for (const Device& device : devices) nodes.insert(device.node);
  return nodes.size();
}

std::vector<std::string> level_names(std::span<const Device> devices, const std::vector<int>& sizes,
                                     const std::string& inner) {
  std::vector<std::string> names;
  bool named_inner = false;
  for (std::size_t l = sizes.size(); l-- > 0;) {
    const auto size = static_cast<std::size_t>(sizes[l]);
    const bool within_node = count_nodes(devices.first(size)) == 1;
    const bool outermost = l + 1 == sizes.size();
    std::string name = "group of " + std::to_string(size);
    if (within_node && !named_inner) name = inner;
    if (!within_node && outermost) name = "cluster";
    named_inner |= within_node;
    names.insert(names.begin(), name);
  }
  return names;
}

template <class Value>
Value median(std::vector<Value> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

std::vector<KeptTime> pooled_kept(std::span<const MeasuredPair> pairs) {
  std::map<Bytes, std::vector<Seconds>> by_size;
  for (const MeasuredPair& pair : pairs) {
    for (const KeptTime& one : pair.kept) by_size[one.size].push_back(one.time);
  }
  std::vector<KeptTime> kept;
  for (auto& [size, times] : by_size) kept.push_back({size, median(std::move(times))});
  return kept;
}

Level make_level(std::string name, int devices, std::span<const MeasuredPair> pairs) {
  std::vector<LinkSample> samples = pooled(pairs);
  const LinkFit fit = fit_link(samples);
  Level level;
  level.name = std::move(name);
  level.devices = devices;
  level.bandwidth = fit.link.bandwidth;
  level.latency = fit.link.latency;
  level.fit_residual = fit.residual;
  level.samples = std::move(samples);
  set_message_cost(level, pooled_kept(pairs));
  std::vector<double> both_ways;
  for (const MeasuredPair& pair : pairs)
    both_ways.push_back(pair.both_ways.empty() ? 1 : std::ranges::min(pair.both_ways));
  if (median(std::move(both_ways)) > kFullDuplex) level.duplex = Duplex::half;
  return level;
}

}  // namespace

DeviceGroups group_devices(const std::vector<std::vector<double>>& cost, double factor) {
  DeviceGroups result;
  result.order.resize(cost.size());
  std::iota(result.order.begin(), result.order.end(), 0);
  for (const double cut : cuts(cost, factor)) {
    const Groups groups = groups_within(cost, cut);
    if (!is_level(groups, cost, cut)) continue;
    result.order = regrouped(result.order, groups);
    result.sizes.push_back(static_cast<int>(groups.front().size()));
  }
  return result;
}

double pair_cost(std::span<const LinkSample> samples) {
  double sum = 0;
  for (const LinkSample& sample : samples) sum += std::log(sample.time.median.count());
  return std::exp(sum / static_cast<double>(samples.size()));
}

Cluster build_cluster(std::vector<Device> devices, std::span<const MeasuredPair> pairs,
                      const std::string& inner) {
  Costs cost(devices.size(), std::vector<double>(devices.size(), 0));
  for (const MeasuredPair& pair : pairs) {
    const auto i = static_cast<std::size_t>(pair.first);
    const auto j = static_cast<std::size_t>(pair.second);
    cost[i][j] = cost[j][i] = pair_cost(pair.samples);
  }
  const DeviceGroups groups = group_devices(cost);
  std::vector<int> position(devices.size());
  Cluster cluster;
  cluster.measured = true;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    const auto device = static_cast<std::size_t>(groups.order[p]);
    position[device] = static_cast<int>(p);
    cluster.devices.push_back(std::move(devices[device]));
    cluster.devices.back().id = DeviceId{static_cast<int>(p)};
  }
  std::vector<std::vector<MeasuredPair>> meeting(groups.sizes.size());
  for (const MeasuredPair& pair : pairs) {
    meeting[level_of(groups, position[static_cast<std::size_t>(pair.first)],
                     position[static_cast<std::size_t>(pair.second)])]
        .push_back(pair);
  }
  const std::vector<std::string> names = level_names(cluster.devices, groups.sizes, inner);
  for (std::size_t l = 0; l < meeting.size(); ++l)
    cluster.levels.push_back(make_level(names[l], groups.sizes[l], meeting[l]));
  return cluster;
}

MeasuredLinks measure_all(int devices, const std::function<MeasuredPair(int, int)>& measure_pair,
                          const std::function<std::vector<LinkSample>()>& sample_all_reduce,
                          const std::function<void(double)>& progress) {
  const int measurements = devices * (devices - 1) / 2 + 1;
  int done = 0;
  const auto step = [&] {
    if (progress) progress(static_cast<double>(++done) / measurements);
  };
  MeasuredLinks links;
  for (int i = 0; i < devices; ++i) {
    for (int j = i + 1; j < devices; ++j) {
      links.pairs.push_back(measure_pair(i, j));
      step();
    }
  }
  links.all_reduce = sample_all_reduce();
  step();
  return links;
}

Cluster build_cluster(std::vector<Device> devices, const MeasuredLinks& links, const std::string& inner) {
  Cluster cluster = build_cluster(std::move(devices), links.pairs, inner);
  const auto& [link, residual] = fit_sums(links.all_reduce);
  cluster.levels.back().all_reduce = {.bandwidth = link.bandwidth,
                                      .latency = link.latency,
                                      .fit_residual = residual,
                                      .samples = links.all_reduce,
                                      .cached = link.cached,
                                      .beyond = link.beyond};
  return cluster;
}

std::vector<std::string> link_findings(const Cluster& cluster) {
  std::vector<std::string> findings;
  const auto add = [&](const std::string& what, const LinkFit& fit, std::span<const LinkSample> samples) {
    if (auto finding = fit_finding(what, fit, samples)) findings.push_back(std::move(*finding));
  };
  for (const Level& level : cluster.levels) {
    add("level " + level.name, {plan::link_of(level), level.fit_residual}, level.samples);
    if (const auto& sums = level.all_reduce)
      add("all-reduce of level " + level.name, {link_of(*sums), sums->fit_residual}, sums->samples);
  }
  return findings;
}

}  // namespace pp::run
