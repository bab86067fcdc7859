// Where replicas of a model that are not updated together meet: they fetch weights, push gradients and keep
// each other's time. One object for all replicas, on the rank of the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "librun/server/clock_table.h"
#include "librun/server/interleaving.h"
#include "librun/server/server_access.h"
#include "librun/server/server_figures.h"
#include "librun/server/weight_store.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

struct ServerOptions {
  plan::WeightPolicy policy = plan::WeightPolicy::server;
  std::vector<WorkerId> replicas;             ///< in their order
  Step bound = 0;                             ///< ClockTable
  std::optional<std::uint64_t> interleaving;  ///< the seed of a fixed order; none: as they come
  Step first_step = 0;                        ///< with which the run begins
};

/// The store does one thing at a time, but for hogwild's without a fixed order: replicas then read and write
/// while others do.
class ParameterServer final : public ServerAccess {
 public:
  /// `run` must outlive it.
  ParameterServer(Coordinator& run, ServerOptions options);

  /// The first replica brings the weights, before it begins; the others wait for it.
  void open(std::unique_ptr<WeightStore> store);

  // Replicas of this process.
  void begin(int replica, const at::Tensor& into) override;
  void finish(int replica, const FlatTensors* gradient, double rate) override;
  void leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
             model::Optimizer* keeper) override;

  // The same for who must not wait: where the replica would have to, nothing happens and the answer is false.
  bool try_begin(int replica, const at::Tensor& into);
  bool try_finish(int replica, const FlatTensors* gradient, double rate);
  /// A replica leaves in two calls. `gradient` is read until the second one has had its way.
  void arrive(int replica, const FlatTensors* gradient, double rate);
  bool try_depart(int replica, const at::Tensor& into);

  /// Waits until replicas that have left have the weights of all.
  ServerFigures figures(WorkerId caller);

 private:
  struct Place {
    std::int64_t seen = 0;   ///< updates when it began
    std::int64_t range = 0;  ///< that it has left
    const FlatTensors* left_over = nullptr;
    double rate = 0;
  };
  WorkerId worker(int replica) const { return options_.replicas[static_cast<std::size_t>(replica)]; }
  Place& place(int replica) { return places_[static_cast<std::size_t>(replica)]; }
  /// Whether replicas use the store beside each other.
  bool unlocked() const { return options_.policy == plan::WeightPolicy::hogwild && !interleaving_; }
  void pass();
  void close_stretch();

  // Under the lock: whether a replica need not wait, and what happens then.
  bool has_turn(int replica) const { return !interleaving_ || interleaving_->turn() == replica; }
  bool may_begin(int replica) const {
    return store_ && fetching_ == 0 && clocks_.may_begin(replica) && has_turn(replica);
  }
  bool all_left(int replica) { return ranges_ > place(replica).range; }
  void note_begin(int replica, const at::Tensor& into);
  void note_end(int replica, const FlatTensors* gradient, double rate);
  void depart(int replica, const at::Tensor& into);

  ServerOptions options_;
  Monitor monitor_;  ///< of what follows
  std::unique_ptr<WeightStore> store_;
  ClockTable clocks_;
  std::optional<Interleaving> interleaving_;
  std::vector<Place> places_;
  int left_ = 0;             ///< replicas
  int fetching_ = 0;         ///< replicas that have left and do not have the weights of all yet
  std::int64_t ranges_ = 0;  ///< that all have left
  ServerFigures figures_;
};

}  // namespace pp::run
