#include "libplan/search/zero_bubble/greedy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Greedy {
 public:
  Greedy(const Pipeline& pipeline, const std::vector<Room>& rooms, const GreedyRule& rule)
      : pipeline_(pipeline),
        rooms_(rooms),
        rule_(rule),
        workers_(pipeline.stages.size()),
        readers_(workers_.size()),
        order_(workers_.size()) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (const auto* inlets : {&pipeline.stages[w].activations, &pipeline.stages[w].gradients}) {
        for (const Inlet& inlet : *inlets) readers_[inlet.from].push_back(w);
      }
    }
  }

  Order run() {
    for (std::size_t w = 0; w < workers_.size(); ++w) choices_.push_back(choose(w));
    for (std::size_t left = 3 * at(pipeline_.micro_batches) * workers_.size(); left > 0; --left) {
      const auto first = std::ranges::min_element(choices_, {}, &Choice::time);
      const auto next = at(first - choices_.begin());
      start(next, *first);
      choices_[next] = choose(next);
      for (const std::size_t reader : readers_[next]) choices_[reader] = choose(reader);
    }
    return std::move(order_);
  }

 private:
  struct Worker {
    double free = 0;
    std::vector<double> forward_ends, input_ends;  ///< by micro-batch, those that have started
    int weights = 0;

    int forwards() const { return static_cast<int>(forward_ends.size()); }
    int inputs() const { return static_cast<int>(input_ends.size()); }
  };
  struct Choice {
    double time = kNever;
    OpKind kind = OpKind::forward;
  };

  /// When all tensors of a micro-batch are here; never, as long as one of their producers has not started.
  double arrival(const std::vector<Inlet>& inlets, std::vector<double> Worker::*ends, int micro_batch) const {
    double latest = 0;
    for (const Inlet& inlet : inlets) {
      const std::vector<double>& produced = workers_[inlet.from].*ends;
      if (at(micro_batch) >= produced.size()) return kNever;
      latest = std::max(latest, produced[at(micro_batch)] + inlet.delay[at(micro_batch)]);
    }
    return latest;
  }

  /// Never, too, when none is left, or neither room nor window allows one.
  double forward_arrival(std::size_t w) const {
    const Worker& worker = workers_[w];
    if (worker.forwards() == pipeline_.micro_batches) return kNever;
    if (worker.forwards() - worker.inputs() >= rule_.windows[w]) return kNever;
    if (worker.forwards() >= rooms_[w][at(worker.weights)]) return kNever;
    return arrival(pipeline_.stages[w].activations, &Worker::forward_ends, worker.forwards());
  }
  double input_arrival(std::size_t w) const {
    const Worker& worker = workers_[w];
    if (worker.inputs() == worker.forwards()) return kNever;
    return arrival(pipeline_.stages[w].gradients, &Worker::input_ends, worker.inputs());
  }

  /// What worker `w` runs next, as far as is known now, and when.
  Choice choose(std::size_t w) const {
    const Worker& worker = workers_[w];
    const int due = worker.inputs() - worker.weights;
    if (due > rule_.backlogs[w]) return {worker.free, OpKind::weight_gradient};
    const double forward = std::max(worker.free, forward_arrival(w));
    const double input = std::max(worker.free, input_arrival(w));
    const double next = std::min(forward, input);
    if (due > 0) {
      const double weight = pipeline_.stages[w].weight_gradient[at(worker.weights)];
      if (next > worker.free && worker.free + rule_.fitting_share * weight <= next) {
        return {worker.free, OpKind::weight_gradient};
      }
    }
    const bool forward_first = rule_.inputs_first ? forward < input : forward <= input;
    return {next, forward_first ? OpKind::forward : OpKind::input_gradient};
  }

  void start(std::size_t w, const Choice& choice) {
    Worker& worker = workers_[w];
    order_[w].push_back(choice.kind);
    const auto run = [&](int m) {
      return worker.free = choice.time + pipeline_.stages[w].of(choice.kind)[at(m)];
    };
    if (choice.kind == OpKind::forward) {
      worker.forward_ends.push_back(run(worker.forwards()));
    } else if (choice.kind == OpKind::input_gradient) {
      worker.input_ends.push_back(run(worker.inputs()));
    } else {
      run(worker.weights++);
    }
  }

  const Pipeline& pipeline_;
  const std::vector<Room>& rooms_;
  const GreedyRule& rule_;
  std::vector<Worker> workers_;
  std::vector<std::vector<std::size_t>> readers_;  ///< per worker, those that wait for its tensors
  std::vector<Choice> choices_;                    ///< per worker, what choose() says
  Order order_;
};

Order by_rule(const std::vector<HandRule>& rules, const std::vector<Room>& rooms) {
  Order order;
  for (std::size_t s = 0; s < rooms.size(); ++s) order.push_back(apply(rules[s], rooms[s]));
  return order;
}

/// Windows that let forwards of `pace` seconds each fill `share` of the round trip. They do not grow along the
/// pipeline: a worker that wants more forwards than the one before holds would wait for ever.
std::vector<int> windows(const Pipeline& pipeline, const std::vector<Room>& rooms, double share, double pace) {
  const auto trips = round_trips(pipeline);
  std::vector<int> result;
  int before = pipeline.micro_batches;
  for (std::size_t s = 0; s < rooms.size(); ++s) {
    const double wanted = pace > 0 ? std::ceil(share * trips[s].front() / pace - 1e-9) : 0;
    before = std::min({before, rooms[s].front(), 1 + static_cast<int>(std::min(wanted, 1.0 * before))});
    result.push_back(before);
  }
  return result;
}

/// Seconds that the slowest worker spends on a micro-batch, on average.
double slowest(const Pipeline& pipeline) {
  double result = 0;
  for (const StageTimes& stage : pipeline.stages) {
    double sum = 0;
    for (const OpKind kind : {OpKind::forward, OpKind::input_gradient, OpKind::weight_gradient}) {
      for (const double seconds : stage.of(kind)) sum += seconds;
    }
    result = std::max(result, sum / pipeline.micro_batches);
  }
  return result;
}

}  // namespace

Order schedule_greedily(const Pipeline& pipeline, const std::vector<Room>& rooms, const GreedyRule& rule) {
  return Greedy(pipeline, rooms, rule).run();
}

std::vector<NamedOrder> hand_written_orders(const std::vector<Room>& rooms) {
  const int workers = static_cast<int>(rooms.size());
  const int count = static_cast<int>(rooms.front().size());
  const std::vector<Room> unlimited(rooms.size(), Room(at(count), count));
  struct Kind {
    const char* name;
    int slope;  ///< window 1 + slope * (workers behind)
    int delay;  ///< W this many times the workers before
  };
  std::vector<NamedOrder> result;
  for (const auto& [name, slope, delay] :
       {Kind{"ZB-H2", 2, 2}, Kind{"ZB-H1", 1, 1}, Kind{"1F1B, split", 1, 0}}) {
    std::vector<HandRule> rules;
    for (int s = 0; s < workers; ++s) rules.push_back({1 + slope * (workers - 1 - s), delay * s});
    Order order = by_rule(rules, unlimited);
    bool admissible = true;
    for (std::size_t s = 0; s < rooms.size(); ++s) admissible &= is_valid(order[s], rooms[s]);
    if (admissible) result.push_back({name, std::move(order)});
  }
  return result;
}

std::vector<NamedOrder> starting_orders(const Pipeline& pipeline, const std::vector<Room>& rooms) {
  constexpr double kShares[] = {1.0 / 2, 1, 3.0 / 2, 2, 3};
  const double pace = slowest(pipeline);
  const int all = pipeline.micro_batches;
  std::vector<NamedOrder> result;
  for (const double share : kShares) {
    const std::vector<int> window = windows(pipeline, rooms, share, pace);
    for (const int delay : {0, 1, 2, all}) {  // W waits for this many micro-batches per worker before
      std::vector<HandRule> rules;
      std::vector<int> backlogs;
      for (int s = 0; s < pipeline.size(); ++s) {
        rules.push_back({window[at(s)], delay * s});
        backlogs.push_back(delay * s + (delay == all ? all : 0));
      }
      result.push_back({"rule", by_rule(rules, rooms)});
      for (const double fitting : {0.0, 0.5, 1.0}) {
        for (const bool inputs_first : {false, true}) {
          result.push_back(
              {"greedy", schedule_greedily(pipeline, rooms, {window, backlogs, fitting, inputs_first})});
        }
      }
    }
  }
  return result;
}

}  // namespace pp::plan
