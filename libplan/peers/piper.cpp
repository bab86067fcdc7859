#include "libplan/peers/piper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "libplan/cost/constants.h"
#include "libplan/cost/recompute.h"
#include "libplan/peers/set_search.h"
#include "libplan/search/exact/bisect.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// The layer's least device seconds at any degree.
double least_work(const std::vector<PiperDegree>& degrees, int layer) {
  double least = std::numeric_limits<double>::infinity();
  for (const PiperDegree& degree : degrees) {
    if (degree.of(layer)) least = std::min(least, degree.degree * degree.of(layer)->plain.time.count());
  }
  return least;
}

/// `degrees` and `stage` must outlive it.
PiperProblem problem_of(const PeerInput& input, const PeerOptions& options,
                        const std::vector<PiperDegree>& degrees, PiperStage& stage) {
  PiperProblem problem;
  problem.devices = options.levels.front().devices;
  problem.micro_batches = options.micro_batches_in_batch;
  problem.degrees.clear();
  for (const PiperDegree& degree : degrees) problem.degrees.push_back(degree.degree);
  for (int layer = 0; layer < input.size(); ++layer) problem.work.push_back(least_work(degrees, layer));
  problem.take = [&](int degree, const std::vector<int>& layers) {
    return stage.take(degrees[at(degree)], layers);
  };
  problem.load = [&](int replicas, int in_flight, std::optional<double> limit) {
    return stage.load(replicas, in_flight, limit);
  };
  return problem;
}

/// The same stages by the memory that they cannot do without.
PiperProblem by_memory(PiperProblem problem, const PiperStage& stage) {
  std::ranges::fill(problem.work, 0);
  problem.load = [&](int, int in_flight, std::optional<double>) { return stage.least_memory(in_flight); };
  return problem;
}

PiperSolution best_of(const SearchedSets& searched, const PiperProblem& problem) {
  PiperSolution best;
  for (const std::vector<LayerSet>& sets : searched.chains) {
    PiperSolution found = search_piper(sets, problem);
    if (found.value < best.value) best = std::move(found);
  }
  return best;
}

Infeasible does_not_fit(double needed, double limit, int devices) {
  Infeasible none;
  none.smallest_limit = Bytes(static_cast<std::int64_t>(needed));
  none.short_by = Bytes(static_cast<std::int64_t>(needed - limit));
  none.reason = "does not fit " + std::to_string(devices) + " devices of " +
                std::to_string(static_cast<std::int64_t>(limit)) +
                " bytes, with every layer recomputed: " + std::to_string(none.short_by.value) + " bytes short";
  none.remedy = "--memory-limit " + std::to_string(none.smallest_limit->value);
  return none;
}

/// Sums of work round otherwise than loads do.
constexpr double kJustBelow = 1 - 1e-12;

struct Test {
  std::vector<PiperPlanStage> stages;
  double value = kInfinity;
  double next = kInfinity;
  bool feasible() const { return !stages.empty(); }
};

/// What holds for every limit.
struct Space {
  const std::vector<LayerSet>& sets;
  const PiperProblem& problem;
  int layers = 0;
  std::vector<double> work;   ///< of each set
  std::vector<int> replicas;  ///< that divide the batch, ascending
};

Space make_space(const std::vector<LayerSet>& sets, const PiperProblem& problem) {
  Space space{sets, problem, static_cast<int>(problem.work.size()), {}, {}};
  for (const LayerSet& set : sets) {
    double sum = 0;
    for (int layer = 0; layer < space.layers; ++layer) sum += set.has(layer) ? problem.work[at(layer)] : 0;
    space.work.push_back(sum * kJustBelow);
  }
  for (int d = 1; d <= std::min(problem.devices, problem.micro_batches); ++d) {
    if (problem.micro_batches % d == 0) space.replicas.push_back(d);
  }
  return space;
}

/// How to run what a set lacks with every load within the limit.
struct Way {
  int devices = 0;
  int slots = 0;  ///< replicas of all its stages
  int end = 0;    ///< the first of them leads to this set
  int rest = 0;   ///< the way of that set that the others take
  int replicas = 0;
  int degree = 0;
};

/// Fewer devices and fewer slots never hurt the stages in front, so a front of both is enough.
class Probe {
 public:
  Probe(const Space& space, double limit)
      : space_(space), problem_(space.problem), limit_(limit), ways_(space.sets.size()) {}

  Test run() {
    const int full = static_cast<int>(ways_.size()) - 1;
    ways_[at(full)].push_back({});
    for (int end = full; end > 0; --end) {
      if (ways_[at(end)].empty()) continue;
      for (int begin = end - 1; begin >= 0; --begin) {
        if (space_.sets[at(end)].contains(space_.sets[at(begin)])) extend(begin, end);
      }
    }
    return walk();
  }

 private:
  void extend(int begin, int end) {
    layers_.clear();
    for (int degree = 0; degree < static_cast<int>(problem_.degrees.size()); ++degree) {
      taken_ = Taken::not_yet;
      for (int rest = 0; rest < std::ssize(ways_[at(end)]); ++rest) {
        if (!extend(begin, end, degree, rest)) break;
      }
    }
  }

  /// With the fewest replicas that keep to the limit. False: the layers do not run at this degree.
  bool extend(int begin, int end, int degree, int rest) {
    const Way& behind = ways_[at(end)][at(rest)];
    const int width = problem_.degrees[at(degree)];
    const double stage_work = space_.work[at(end)] - space_.work[at(begin)];
    for (const int replicas : space_.replicas) {
      const int left = problem_.devices - behind.devices - width * replicas;
      if (left < 0 || behind.slots + replicas > problem_.micro_batches) break;
      if (!accept(space_.work[at(begin)], left)) break;
      if (!accept(stage_work * kJustBelow, width * replicas)) continue;
      if (!take(begin, end, degree)) return false;
      const int slots = behind.slots + replicas;
      const double load = problem_.load(replicas, (slots + replicas - 1) / replicas, limit_);
      if (load > limit_) {
        next_ = std::min(next_, load);
        continue;
      }
      keep(ways_[at(begin)], {behind.devices + width * replicas, slots, end, rest, replicas, degree});
      break;
    }
    return true;
  }

  /// Whether so many devices can do this work within the limit.
  bool accept(double work, int devices) {
    if (work <= 0 || (devices > 0 && work <= limit_ * devices)) return true;
    if (devices > 0) next_ = std::min(next_, std::max(work / devices, std::nextafter(limit_, kInfinity)));
    return false;
  }

  bool take(int begin, int end, int degree) {
    if (taken_ == Taken::not_yet) {
      if (layers_.empty())
        layers_ = layers_between(space_.sets[at(begin)], space_.sets[at(end)], space_.layers);
      taken_ = problem_.take(degree, layers_) ? Taken::yes : Taken::no;
    }
    return taken_ == Taken::yes;
  }

  static void keep(std::vector<Way>& ways, const Way& way) {
    const auto covers = [](const Way& a, const Way& b) { return a.devices <= b.devices && a.slots <= b.slots; };
    if (std::ranges::any_of(ways, [&](const Way& other) { return covers(other, way); })) return;
    std::erase_if(ways, [&](const Way& other) { return covers(way, other); });
    ways.push_back(way);
  }

  Test walk() {
    Test test;
    test.next = next_;
    if (ways_.front().empty()) return test;
    test.value = 0;
    const Way* way = &*std::ranges::min_element(ways_.front(), {}, &Way::devices);
    for (int begin = 0; begin < static_cast<int>(ways_.size()) - 1;) {
      PiperPlanStage stage{layers_between(space_.sets[at(begin)], space_.sets[at(way->end)], space_.layers),
                           way->replicas, way->degree};
      problem_.take(stage.degree, stage.layers);
      const int in_flight = (way->slots + way->replicas - 1) / way->replicas;
      test.value = std::max(test.value, problem_.load(stage.replicas, in_flight, std::nullopt));
      test.stages.push_back(std::move(stage));
      begin = way->end;
      way = &ways_[at(begin)][at(way->rest)];
    }
    return test;
  }

  enum class Taken { not_yet, no, yes };

  const Space& space_;
  const PiperProblem& problem_;
  double limit_;
  double next_ = kInfinity;
  std::vector<std::vector<Way>> ways_;  ///< per set
  std::vector<int> layers_;             ///< of the stage at hand
  Taken taken_ = Taken::not_yet;
};

using Edges = std::map<std::string, Bytes>;

PiperCosts assumed_costs(const PeerInput& input, int layer) {
  const LayerPrice& price = input.prices[at(layer)];
  const GraphLayer& node = input.graph.layers[at(layer)];
  const Seconds time(input.compute(layer));
  const Bytes fixed(2 * node.parameter_bytes + node.buffer_bytes);
  std::int64_t read = 0;
  for (const int producer : node.producers) read += input.prices[at(producer)].output;
  PiperCosts costs{{time, Bytes(price.saved), fixed}, std::nullopt, 0, {}};
  if (read < price.saved) costs.recompute = PiperVariant{time + Seconds(price.forward), Bytes(read), fixed};
  return costs;
}

const PiperShare* share_of(const LayerProfile& layer, int degree) {
  if (!layer.piper) return nullptr;
  const auto found = std::ranges::find(layer.piper->tensor, degree, &PiperShare::degree);
  return found == layer.piper->tensor.end() ? nullptr : &*found;
}

std::optional<PiperCosts> costs_of(const PeerInput& input, int layer, int degree) {
  const LayerProfile& profile = input.profile.layers[at(layer)];
  const auto weights = static_cast<double>(input.graph.layers[at(layer)].parameter_bytes);
  if (degree == 1) {
    PiperCosts costs = profile.piper ? PiperCosts{profile.piper->plain, profile.piper->recompute, 0, {}}
                                     : assumed_costs(input, layer);
    costs.weights = weights;
    return costs;
  }
  const PiperShare* share = share_of(profile, degree);
  if (share == nullptr) return std::nullopt;
  return PiperCosts{share->plain, share->recompute, static_cast<double>(share->parameters.value), {}};
}

[[noreturn]] void refuse_edge(const std::string& layer, const std::string& direction,
                              const std::string& other) {
  throw Error(ErrorKind::data, "layer " + layer + ": its piper costs do not list what " + direction +
                                   " layer " + other + "; import the profile again");
}

double incoming(const PeerInput& input, int producer, int reader, int degree) {
  const LayerProfile& profile = input.profile.layers[at(reader)];
  if (!profile.piper) return static_cast<double>(input.prices[at(producer)].output);
  const PiperShare* share = share_of(profile, degree);
  const Edges& edges = share != nullptr ? share->incoming : profile.piper->incoming;
  const auto found = edges.find(input.graph.layers[at(producer)].name);
  if (found == edges.end()) refuse_edge(profile.name, "comes from", input.graph.layers[at(producer)].name);
  return static_cast<double>(found->second.value);
}

double outgoing(const PeerInput& input, int producer, int reader, int degree) {
  const LayerProfile& profile = input.profile.layers[at(producer)];
  const PiperShare* share = share_of(profile, degree);
  const std::string& name = input.graph.layers[at(reader)].name;
  if (share != nullptr) {
    const auto found = share->outgoing.find(name);
    if (found == share->outgoing.end()) refuse_edge(profile.name, "goes to", name);
    return static_cast<double>(found->second.value);
  }
  if (profile.piper) {
    const auto found = profile.piper->outgoing.find(name);
    if (found != profile.piper->outgoing.end()) return static_cast<double>(found->second.value);
  }
  return incoming(input, producer, reader, 1);
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_piper(const PeerInput& input, const PeerOptions& options) {
  const std::vector<PiperDegree> degrees = piper_degrees(input);
  const SearchedSets searched = searched_sets(input);
  PiperStage stage(input, options);
  const PiperProblem problem = problem_of(input, options, degrees, stage);
  const PiperSolution found = best_of(searched, problem);
  if (found.stages.empty()) {
    const double needed = best_of(searched, by_memory(problem, stage)).value;
    return does_not_fit(needed, input.memory_limit(options), problem.devices);
  }
  PeerPlan plan = empty_plan(input, options);
  double total = 0;
  for (const double work : problem.work) total += work;
  for (const PiperPlanStage& each : found.stages) {
    const PiperDegree& degree = degrees[at(each.degree)];
    double compute = 0;
    for (const int layer : each.layers) compute += degree.of(layer)->plain.time.count();
    plan.stages.push_back(
        {names_of(input, each.layers), each.replicas, Seconds(compute / each.replicas), degree.degree});
  }
  plan.objective = Seconds(found.value);
  const Seconds spread(total / problem.devices);
  const bool exact = searched.every_order && options.strategy == PeerStrategy::automatic;
  plan.lower_bound = exact ? plan.objective : std::min(spread, plan.objective);
  plan.search = searched.words;
  return plan;
}

PiperSolution search_piper(const std::vector<LayerSet>& sets, const PiperProblem& problem) {
  const Space space = make_space(sets, problem);
  const auto probe = [&](double limit) { return Probe(space, limit).run(); };
  if (!probe(kInfinity).feasible()) return {};
  int probes = 0;
  Test best = bisect<Test>(probe, space.work.back() / problem.devices, probes);
  return {best.value, std::move(best.stages)};
}

PiperDegree::PiperDegree(const PeerInput& input, int tensor) : degree(tensor) {
  for (int layer = 0; layer < input.size(); ++layer) costs_.push_back(costs_of(input, layer, degree));
  for (int layer = 0; layer < input.size(); ++layer) {
    for (const int producer : input.graph.layers[at(layer)].producers) {
      if (costs_[at(layer)])
        costs_[at(layer)]->edges.push_back({producer, incoming(input, producer, layer, degree)});
      if (costs_[at(producer)])
        costs_[at(producer)]->edges.push_back({layer, outgoing(input, producer, layer, degree)});
    }
  }
}

const std::vector<PiperAgain>& PiperDegree::again(int in_flight) const {
  const auto [place, fresh] = again_.try_emplace(in_flight);
  std::vector<PiperAgain>& items = place->second;
  if (!fresh) return items;
  for (int layer = 0; layer < static_cast<int>(costs_.size()); ++layer) {
    if (!of(layer) || !of(layer)->recompute) continue;
    const PiperVariant& plain = of(layer)->plain;
    const PiperVariant& other = *of(layer)->recompute;
    const double bytes = in_flight * static_cast<double>((plain.saved - other.saved).value) +
                         static_cast<double>((plain.fixed - other.fixed).value);
    if (bytes > 0) items.push_back({layer, (other.time - plain.time).count(), bytes});
  }
  std::ranges::sort(items, {}, [](const PiperAgain& item) {
    return std::tuple(item.seconds / item.bytes, item.bytes, item.layer);
  });
  return items;
}

std::vector<PiperDegree> piper_degrees(const PeerInput& input) {
  std::set<int> found{1};
  for (const LayerProfile& layer : input.profile.layers) {
    if (!layer.piper) continue;
    for (const PiperShare& share : layer.piper->tensor) found.insert(share.degree);
  }
  std::vector<PiperDegree> degrees;
  for (const int degree : found) degrees.emplace_back(input, degree);
  return degrees;
}

PiperStage::PiperStage(const PeerInput& input, const PeerOptions& options)
    : options_(options),
      bandwidth_(options.levels.front().bandwidth.value),
      limit_(input.memory_limit(options)),
      inside_(at(input.size())) {}

bool PiperStage::take(const PiperDegree& degree, const std::vector<int>& layers) {
  for (const int layer : layers_) inside_[at(layer)] = 0;
  degree_ = &degree;
  layers_ = layers;
  seconds_ = crossing_ = weights_ = saved_ = fixed_ = 0;
  for (const int layer : layers_) inside_[at(layer)] = 1;
  for (const int layer : layers_) {
    const std::optional<PiperCosts>& costs = degree.of(layer);
    if (!costs) return false;
    seconds_ += costs->plain.time.count();
    saved_ += static_cast<double>(costs->plain.saved.value);
    fixed_ += static_cast<double>(costs->plain.fixed.value);
    weights_ += costs->weights;
    for (const PiperEdge& edge : costs->edges) crossing_ += inside_[at(edge.other)] != 0 ? 0 : edge.bytes;
  }
  return true;
}

double PiperStage::shared(double again, int replicas) const {
  const double batch = options_.micro_batches_in_batch;
  return (seconds_ + again + 2 * crossing_ / bandwidth_) / replicas +
         4.0 * (replicas - 1) / replicas * weights_ / (batch * bandwidth_);
}

double PiperStage::load(int replicas, int in_flight, std::optional<double> limit) const {
  double missing = excess(in_flight);
  if (missing <= 0) return shared(0, replicas);
  const bool exact = options_.strategy == PeerStrategy::automatic;
  if (limit && shared(0, replicas) > *limit) return shared(0, replicas);
  double greedy = 0;   // whole layers, cheapest bytes first
  double relaxed = 0;  // the last one in part: no choice takes less
  for (const PiperAgain& item : degree_->again(in_flight)) {
    if (missing <= 0) break;
    if (inside_[at(item.layer)] == 0) continue;
    relaxed = greedy + std::min(1.0, missing / item.bytes) * item.seconds;
    greedy += item.seconds;
    missing -= item.bytes;
  }
  if (missing > 0) return kInfinity;
  if (!exact || (limit && shared(greedy, replicas) <= *limit)) return shared(greedy, replicas);
  // A hair less than the relaxed sum: it rounds differently.
  const double bound = shared(relaxed * (1 - 1e-12), replicas);
  return limit && bound > *limit ? bound : shared(exactly(in_flight), replicas);
}

double PiperStage::exactly(int in_flight) const {
  std::vector<CoverItem> items;
  for (const PiperAgain& item : degree_->again(in_flight)) {
    if (inside_[at(item.layer)] != 0) items.push_back({item.seconds, item.bytes});
  }
  return cover_exactly(items, excess(in_flight)).seconds;
}

double PiperStage::least_memory(int in_flight) const {
  double bytes = in_flight * saved_ + fixed_;
  for (const PiperAgain& item : degree_->again(in_flight))
    bytes -= inside_[at(item.layer)] != 0 ? item.bytes : 0;
  return bytes;
}

}  // namespace pp::plan
