// Where replicas of a model that are not updated together meet: they fetch weights, push gradients and keep
// each other's time. One object for all replicas of a process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "librun/server/clock_table.h"
#include "librun/server/interleaving.h"
#include "librun/server/weight_store.h"
#include "librun/transport/coordinator.h"

namespace pp::run {

struct ServerOptions {
  plan::WeightPolicy policy = plan::WeightPolicy::server;
  std::vector<WorkerId> replicas;             ///< in their order
  Step bound = 0;                             ///< ClockTable
  std::optional<std::uint64_t> interleaving;  ///< the seed of a fixed order; none: as they come
  Step first_step = 0;                        ///< with which the run begins
};

/// How far apart replicas were.
struct ServerFigures {
  std::int64_t updates = 0;        ///< mini-batches that replicas have finished
  std::int64_t stale = 0;          ///< those of others between a begin and its end, over all updates
  std::int64_t largest_stale = 0;  ///< of one update
  Step largest_lead = 0;           ///< mini-batches that a replica was ahead of the slowest when it began
};

/// The store does one thing at a time, but for hogwild's without a fixed order: replicas then read and write
/// while others do. Waits throw as Monitor::wait does.
class ParameterServer {
 public:
  /// `run` must outlive it.
  ParameterServer(Coordinator& run, ServerOptions options);

  /// The first replica brings the weights, before it begins; the others wait for it.
  void open(std::unique_ptr<WeightStore> store);

  /// A replica (its place among them) begins with a mini-batch: waits until its clock allows it and its turn
  /// has come, then fetches `into`, where defined.
  void begin(int replica, const at::Tensor& into);
  /// It has finished it, and pushes `gradient`, where there is one.
  void finish(int replica, const FlatTensors* gradient, double rate);
  /// It has no mini-batch left: brings what it has not pushed, where there is something, and waits until all
  /// replicas have left. What is left over is pushed in replica order; then it fetches the weights of all, and
  /// `keeper`, where it is not null, gets a copy of what the server's optimizer remembers.
  void leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
             model::Optimizer* keeper);

  ServerFigures figures();

 private:
  struct Place {
    std::int64_t seen = 0;  ///< updates when it began
    const FlatTensors* left_over = nullptr;
    double rate = 0;
  };
  WorkerId worker(int replica) const { return options_.replicas[static_cast<std::size_t>(replica)]; }
  bool has_turn(int replica) const { return !interleaving_ || interleaving_->turn() == replica; }
  /// Whether replicas use the store beside each other.
  bool unlocked() const { return options_.policy == plan::WeightPolicy::hogwild && !interleaving_; }
  void pass();
  void close_stretch();

  ServerOptions options_;
  Monitor monitor_;  ///< of what follows
  std::unique_ptr<WeightStore> store_;
  ClockTable clocks_;
  std::optional<Interleaving> interleaving_;
  std::vector<Place> places_;
  int left_ = 0;                ///< replicas
  int fetching_ = 0;            ///< replicas that have left and do not have the weights of all yet
  std::int64_t stretches_ = 0;  ///< that all have left
  ServerFigures figures_;
};

}  // namespace pp::run
