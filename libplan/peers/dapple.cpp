#include "libplan/peers/dapple.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

int profiled_batch(const PeerInput& input) { return static_cast<int>(input.profile.micro_batch_sizes.front()); }

void check_mini_batch(const PeerInput& input, const PeerOptions& options) {
  const int batch = profiled_batch(input);
  if (options.mini_batch >= batch && options.mini_batch % batch == 0) return;
  const int below = options.mini_batch / batch * batch;
  const std::string use =
      (below > 0 ? std::to_string(below) + " or " : std::string()) + std::to_string(below + batch);
  throw Error(ErrorKind::usage, "mini_batch = " + std::to_string(options.mini_batch) +
                                    " is not a multiple of the profile's batch of " + std::to_string(batch) +
                                    " samples, which is DAPPLE's micro-batch; use " + use);
}

void offer(const DappleCosts& costs, const DapplePipeline& pipeline, DappleBest& best) {
  const double latency = costs.latency(pipeline);
  if (latency < best.latency) best = {latency, pipeline};
}

void offer_two_stages(const DappleCosts& costs, DappleBest& best) {
  const int devices = costs.machine.devices();
  for (int count = 1; count < devices; ++count) {
    for (const std::vector<int>& first : placements(costs.machine, std::vector<char>(at(devices)), count)) {
      std::vector<int> others;
      for (int device = 0; device < devices; ++device) {
        if (!std::binary_search(first.begin(), first.end(), device)) others.push_back(device);
      }
      for (int cut = 1; cut < costs.chain.size(); ++cut) offer(costs, {{cut}, {first, others}}, best);
    }
  }
}

/// Compute alone: what the released planner balances straight pipelines by.
class ComputeCost : public StageCost {
 public:
  explicit ComputeCost(const Chain& chain) : chain_(chain) {}
  double stage(int begin, int end, DeviceSpan) const override { return chain_.compute(begin, end); }
  double cut(int, DeviceSpan, CutSide) const override { return 0; }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  const Chain& chain_;
};

/// Each stage takes the next devices / stages devices.
void offer_straight(const DappleCosts& costs, int stages, DappleBest& best) {
  const int devices = costs.machine.devices();
  if (stages > costs.chain.size() || devices % stages != 0) return;
  const int copies = devices / stages;
  if (costs.batches % copies != 0) return;
  SearchSpace space;
  space.layers = costs.chain.size();
  space.devices = space.exact_stages = stages;
  space.max_replicas = 1;
  DapplePipeline pipeline{cuts_of(search_bottleneck(space, ComputeCost(costs.chain)).partition), {}, copies};
  for (int s = 0; s < stages; ++s) {
    std::vector<int>& group = pipeline.devices.emplace_back(at(copies));
    std::iota(group.begin(), group.end(), s * copies);
  }
  offer(costs, pipeline, best);
}

DappleBest best_of(const DappleCosts& costs, PeerStrategy strategy) {
  const int devices = costs.machine.devices();
  DapplePipeline one{{}, {std::vector<int>(at(devices))}};
  std::iota(one.devices.front().begin(), one.devices.front().end(), 0);
  DappleBest best{costs.latency(one), one};
  offer_two_stages(costs, best);
  if (devices > 1) offer_straight(costs, 2, best);
  offer_straight(costs, devices, best);
  if (strategy == PeerStrategy::released) return best;
  search_dapple(costs, 1, best);
  for (int copies = 2; copies < devices; ++copies) {
    if (devices % copies == 0 && costs.batches % copies == 0) search_dapple(costs, copies, best);
  }
  return best;
}

std::vector<PeerStage> stages_of(const PeerInput& input, const LinearOrder& order, const DappleCosts& costs,
                                 const DapplePipeline& pipeline) {
  std::vector<PeerStage> stages;
  for (std::size_t s = 0; s < pipeline.devices.size(); ++s) {
    const int begin = s == 0 ? 0 : pipeline.cuts[s - 1];
    const int end = s < pipeline.cuts.size() ? pipeline.cuts[s] : costs.chain.size();
    const std::vector<int> layers(order.layers.begin() + begin, order.layers.begin() + end);
    const int replicas = static_cast<int>(pipeline.devices[s].size());
    stages.push_back({names_of(input, layers), replicas, Seconds(costs.chain.compute(begin, end) / replicas)});
  }
  return stages;
}

constexpr double kInsideServer = 25e9;  ///< bytes per second, as all three
constexpr double kCollectives = 3e9;    ///< between servers
constexpr double kPointToPoint = 1e9;   ///< between servers

std::set<int> servers_of(const DappleMachine& machine, const std::vector<int>& devices) {
  std::set<int> servers;
  for (const int device : devices) servers.insert(machine.server(device));
  return servers;
}

std::vector<int> range(int first, int count) {
  std::vector<int> devices(at(count));
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

/// The all-reduce of one stage, of which `stage` blocks are hidden.
struct Reduce {
  double seconds = 0;
  int stage = 0;
};

/// A pipeline of the first layers.
struct Label {
  int end = 0;       ///< boundary
  int used = 0;      ///< devices
  int replicas = 0;  ///< of the last stage
  int stages = 0;
  double block = 0;  ///< of the whole mini-batch, not yet divided by the micro-batches
  double transfers = 0;
  std::vector<Reduce> reduces;  ///< none that another outlasts at every block
  int previous = -1;
};

/// Pipelines that continue alike: only the better of two needs to be kept.
using Key = std::tuple<int, int, int>;  ///< devices used, replicas of the last stage, stages

class Search {
 public:
  Search(const DappleCosts& costs, int copies, DappleBest& best)
      : costs_(costs),
        copies_(copies),
        micro_batches_(static_cast<double>(costs.batches) / copies),
        devices_(costs.machine.devices()),
        layers_(costs.chain.size()),
        best_(best),
        open_(at(layers_ + 1)) {}

  void run() {
    labels_.push_back({});
    extend(0);
    for (int end = 1; end < layers_; ++end) {
      for (const auto& [key, labels] : std::map(std::move(open_[at(end)]))) {
        for (const int label : labels) extend(label);
      }
    }
  }

 private:
  /// Never above the latency of any pipeline that continues this one.
  double bound(const Label& label) const {
    const double rest = costs_.compute(label.end, layers_);
    const int left = devices_ - label.used;
    if (rest > 0 && left == 0) return std::numeric_limits<double>::infinity();
    const double block = std::max(label.block, left > 0 ? rest / left : 0) / micro_batches_;
    double exposed = 0;
    for (const Reduce& reduce : label.reduces)
      exposed = std::max(exposed, reduce.seconds - reduce.stage * block);
    return block * (micro_batches_ - 1) + costs_.compute(0, layers_) / costs_.batches + label.transfers +
           exposed;
  }

  void extend(int from) {
    if (labels_[at(from)].stages + 1 > micro_batches_) return;
    const int left = devices_ - labels_[at(from)].used;
    const int least = copies_ > 1 ? copies_ : 1;
    const int most = copies_ > 1 ? copies_ : left;
    for (int replicas = least; replicas <= std::min(most, left); ++replicas) {
      for (int end = labels_[at(from)].end + 1; end <= layers_; ++end) {
        if (!add_stage(from, end, replicas)) break;  // a larger stage is slower still
      }
    }
  }

  /// False when the stage's own time is too long for every pipeline.
  bool add_stage(int from, int end, int replicas) {
    const Label& front = labels_[at(from)];
    Label label{end,         front.used + replicas, replicas,      front.stages + 1,
                front.block, front.transfers,       front.reduces, from};
    const double compute = costs_.compute(front.end, end) / replicas;
    label.block = std::max(label.block, compute);
    if (label.block / micro_batches_ * (micro_batches_ - 1) + costs_.compute(0, layers_) / costs_.batches >=
        best_.latency) {
      return false;
    }
    const std::vector<int> devices = range(front.used, replicas);
    if (front.stages > 0) {
      const std::vector<int> senders = range(front.used - front.replicas, front.replicas);
      const double transfer =
          transfer_per_byte(costs_.machine, senders, devices) * costs_.activation(front.end);
      label.block = std::max(label.block, transfer);
      label.transfers += transfer / costs_.batches;
    }
    add_reduce(label, all_reduce_per_byte(costs_.machine, devices) * costs_.reduced_bytes(front.end, end));
    if (bound(label) < best_.latency) keep(std::move(label));
    return true;
  }

  static void add_reduce(Label& label, double seconds) {
    const int stage = label.stages - 1;
    const bool outlasted = seconds <= 0 || std::any_of(label.reduces.begin(), label.reduces.end(),
                                                       [&](const Reduce& r) { return r.seconds >= seconds; });
    if (!outlasted) label.reduces.push_back({seconds, stage});
  }

  void keep(Label label) {
    if (label.end == layers_) {
      if (copies_ > 1 && label.used != devices_) return;
      best_.latency = bound(label);
      best_.pipeline = pipeline_of(label);
      return;
    }
    std::vector<int>& rivals = open_[at(label.end)][{label.used, label.replicas, label.stages}];
    const auto known = [&](int rival) { return dominates(labels_[at(rival)], label); };
    if (std::any_of(rivals.begin(), rivals.end(), known)) return;
    std::erase_if(rivals, [&](int rival) { return dominates(label, labels_[at(rival)]); });
    rivals.push_back(static_cast<int>(labels_.size()));
    labels_.push_back(std::move(label));
  }

  static bool dominates(const Label& a, const Label& b) {
    return a.block <= b.block && a.transfers <= b.transfers &&
           std::all_of(a.reduces.begin(), a.reduces.end(), [&](const Reduce& mine) {
             return std::any_of(b.reduces.begin(), b.reduces.end(), [&](const Reduce& other) {
               return mine.seconds <= other.seconds && mine.stage >= other.stage;
             });
           });
  }

  DapplePipeline pipeline_of(const Label& last) const {
    DapplePipeline pipeline{.cuts = {}, .devices = {}, .copies = copies_};
    for (const Label* label = &last; label->stages > 0; label = &labels_[at(label->previous)]) {
      pipeline.devices.push_back(range(label->used - label->replicas, label->replicas));
      if (label->end < layers_) pipeline.cuts.push_back(label->end);
    }
    std::reverse(pipeline.cuts.begin(), pipeline.cuts.end());
    std::reverse(pipeline.devices.begin(), pipeline.devices.end());
    return pipeline;
  }

  const DappleCosts& costs_;
  int copies_;
  double micro_batches_;
  int devices_;
  int layers_;
  DappleBest& best_;
  std::vector<Label> labels_;
  std::vector<std::map<Key, std::vector<int>>> open_;  ///< labels by boundary
};

bool is_free(const std::vector<char>& occupied, int device) { return occupied[at(device)] == 0; }

bool in_use(const DappleMachine& machine, const std::vector<char>& occupied, int server) {
  const int first = server * machine.per_server;
  for (int device = first; device < first + machine.per_server; ++device) {
    if (!is_free(occupied, device)) return true;
  }
  return false;
}

/// Server by server, either the empty ones or those in use.
std::vector<int> server_by_server(const DappleMachine& machine, const std::vector<char>& occupied, int count,
                                  bool used) {
  std::vector<int> devices;
  for (int device = 0; device < machine.devices() && std::ssize(devices) < count; ++device) {
    if (in_use(machine, occupied, machine.server(device)) == used && is_free(occupied, device))
      devices.push_back(device);
  }
  return devices;
}

std::vector<int> scattered(const DappleMachine& machine, std::vector<char> occupied, int count) {
  std::vector<int> devices;
  for (int round = 0; round < machine.per_server; ++round) {
    for (int server = 0; server < machine.servers && std::ssize(devices) < count; ++server) {
      const int first = server * machine.per_server;
      for (int device = first; device < first + machine.per_server; ++device) {
        if (!is_free(occupied, device)) continue;
        occupied[at(device)] = 1;
        devices.push_back(device);
        break;
      }
    }
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_dapple(const PeerInput& input, const PeerOptions& options) {
  check_mini_batch(input, options);
  const int servers = options.levels.size() > 1 ? options.levels[1].devices : 1;
  const DappleMachine machine{servers, options.levels.front().devices};
  PeerPlan plan = empty_plan(input, options);
  double best = std::numeric_limits<double>::infinity();
  for (const LinearOrder& order : input.orders) {
    const Chain chain = chain_of(input, order);
    const DappleCosts costs{chain, machine, options.mini_batch / profiled_batch(input)};
    const DappleBest found = best_of(costs, options.strategy);
    if (!(found.latency < best)) continue;
    best = found.latency;
    plan.copies = found.pipeline.copies;
    plan.stages = stages_of(input, order, costs, found.pipeline);
  }
  plan.objective = Seconds(best);
  const double work = input.total_compute() * options.mini_batch / profiled_batch(input);
  plan.lower_bound = std::min(plan.objective, Seconds(work / machine.devices()));
  plan.search = (options.strategy == PeerStrategy::released ? "the released planner's candidates over "
                                                            : "exact for stages on consecutive devices over ") +
                counted(std::ssize(input.orders), "layer order");
  return plan;
}

double all_reduce_per_byte(const DappleMachine& machine, const std::vector<int>& devices) {
  const int count = static_cast<int>(devices.size());
  if (count == 1) return 0;
  const double ring = 2.0 * (count - 1) / count;
  if (servers_of(machine, devices).size() > 1) return ring / kCollectives;
  return ring / kInsideServer / (count / 2);
}

double transfer_per_byte(const DappleMachine& machine, const std::vector<int>& from,
                         const std::vector<int>& to) {
  const std::set<int> receivers = servers_of(machine, to);
  if (receivers.size() > 1) return 1 / kCollectives;
  const auto outside = std::count_if(from.begin(), from.end(),
                                     [&](int device) { return receivers.count(machine.server(device)) == 0; });
  if (outside == 0) return 1 / kInsideServer;
  return static_cast<double>(outside) / static_cast<double>(from.size()) / kPointToPoint;
}

double DappleCosts::reduced_bytes(int begin, int end) const {
  return static_cast<double>(chain.between(begin, std::min(end + 1, chain.size())).parameters);
}

double DappleCosts::latency(const DapplePipeline& pipeline) const {
  std::vector<int> ends = pipeline.cuts;
  ends.push_back(chain.size());
  const double micro_batches = static_cast<double>(batches) / pipeline.copies;
  double block = 0;
  double transfers = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int begin = s == 0 ? 0 : ends[s - 1];
    const auto replicas = static_cast<double>(pipeline.devices[s].size());
    block = std::max(block, compute(begin, ends[s]) / replicas);
    if (s + 1 == ends.size()) break;
    const double transfer =
        transfer_per_byte(machine, pipeline.devices[s], pipeline.devices[s + 1]) * activation(ends[s]);
    block = std::max(block, transfer);
    transfers += transfer / batches;
  }
  block /= micro_batches;
  double exposed = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int begin = s == 0 ? 0 : ends[s - 1];
    const double reduce = all_reduce_per_byte(machine, pipeline.devices[s]) * reduced_bytes(begin, ends[s]);
    exposed = std::max(exposed, reduce - static_cast<double>(s) * block);
  }
  return block * (micro_batches - 1) + compute(0, chain.size()) / batches + transfers + exposed;
}

void search_dapple(const DappleCosts& costs, int copies, DappleBest& best) {
  Search(costs, copies, best).run();
}

std::vector<std::vector<int>> placements(const DappleMachine& machine, const std::vector<char>& occupied,
                                         int count) {
  std::vector<std::vector<int>> distinct;
  for (std::vector<int>& devices :
       std::vector{server_by_server(machine, occupied, count, false),
                   server_by_server(machine, occupied, count, true), scattered(machine, occupied, count)}) {
    const bool known = std::find(distinct.begin(), distinct.end(), devices) != distinct.end();
    if (std::ssize(devices) == count && !known) distinct.push_back(std::move(devices));
  }
  return distinct;
}

}  // namespace pp::plan
