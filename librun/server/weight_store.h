// What a parameter server does with what replicas bring: the weights, and how they change. Pure arithmetic on
// vectors; who may come when is the server's business (parameter_server.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "libprofile/model/optimizer.h"
#include "librun/data/order.h"
#include "librun/stage/flat_layout.h"

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

}  // namespace pp::run
