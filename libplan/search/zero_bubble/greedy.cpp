#include "libplan/search/zero_bubble/greedy.h"

#include <algorithm>
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

}  // namespace

Order schedule_greedily(const Pipeline& pipeline, const std::vector<Room>& rooms, const GreedyRule& rule) {
  return Greedy(pipeline, rooms, rule).run();
}

}  // namespace pp::plan
