// Where replicas of a model that are not updated together meet: they fetch weights, push gradients and keep
// each other's time. One object for all replicas, on the rank of the first one. Its weights and how they
// change are pure arithmetic on vectors, apart from who may come when.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "libprofile/model/optimizer.h"
#include "librun/data/order.h"
#include "librun/server/interleaving.h"
#include "librun/server/server_access.h"
#include "librun/stage/flat_layout.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

/// All vectors have the layout of the weights, [n].
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  /// Copies the weights as this replica sees them.
  virtual void fetch(int replica, const at::Tensor& into) const = 0;
  /// What the replica has computed in mini-batch `clock` of its own, counted from 0; read only here.
  virtual void push(int replica, Step clock, const FlatTensors& gradient, double rate) = 0;
  /// All replicas have finished their mini-batches below `clock`.
  virtual void complete(Step /*clock*/) {}
  /// What its optimizer remembers; references.
  virtual std::vector<model::OptimizerSlot> state() const { return {}; }
};

/// Downpour SGD (Dean et al., NIPS 2012, 4.1): one step of the optimizer for whatever comes, at once.
class DownpourStore : public WeightStore {
 public:
  DownpourStore(FlatTensors weights, std::unique_ptr<model::Optimizer> optimizer)
      : weights_(std::move(weights)), optimizer_(std::move(optimizer)) {}
  void fetch(int replica, const at::Tensor& into) const override;
  void push(int replica, Step clock, const FlatTensors& gradient, double rate) override;
  std::vector<model::OptimizerSlot> state() const override { return optimizer_->state(); }

 private:
  FlatTensors weights_;
  std::unique_ptr<model::Optimizer> optimizer_;
};

/// Hogwild (Recht et al., NIPS 2011): the only store that several threads use at once, without a lock. A
/// component is read and written as a whole; between reading and writing it another replica may write, whose
/// change is lost then. That race is the algorithm. Each replica has an optimizer of its own, without state.
class HogwildStore : public WeightStore {
 public:
  HogwildStore(FlatTensors weights, std::vector<std::unique_ptr<model::Optimizer>> optimizers)
      : weights_(std::move(weights)), optimizers_(std::move(optimizers)) {}
  void fetch(int replica, const at::Tensor& into) const override;
  void push(int replica, Step clock, const FlatTensors& gradient, double rate) override;

 private:
  FlatTensors weights_;
  std::vector<std::unique_ptr<model::Optimizer>> optimizers_;
};

/// Keeps what is pushed until its clock is complete.
class ClockedStore : public WeightStore {
 public:
  /// What becomes of the gradients of a complete clock.
  enum class Apply {
    each,  ///< a step for each, in replica order: stale synchronous parallel (Ho et al., NIPS 2013). A replica
           ///< sees complete clocks and its own updates since. The optimizer has no state.
    sum    ///< one step on their sum in replica order: the synchronous parameter server
  };
  ClockedStore(FlatTensors weights, std::unique_ptr<model::Optimizer> optimizer, Apply apply)
      : weights_(std::move(weights)), optimizer_(std::move(optimizer)), apply_(apply) {}
  void fetch(int replica, const at::Tensor& into) const override;
  void push(int replica, Step clock, const FlatTensors& gradient, double rate) override;
  void complete(Step clock) override;
  std::vector<model::OptimizerSlot> state() const override { return optimizer_->state(); }

 private:
  struct Update {
    FlatTensors gradient;  ///< a copy
    double rate = 0;
  };
  using Updates = std::map<int, Update>;  ///< by replica
  void apply_sum(Updates& updates);

  FlatTensors weights_;
  std::unique_ptr<model::Optimizer> optimizer_;
  Apply apply_;
  std::map<Step, Updates> pending_;  ///< by clock
};

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
