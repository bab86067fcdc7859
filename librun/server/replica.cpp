#include "librun/server/replica.h"

#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

std::unique_ptr<WeightStore> make_store(
    plan::WeightPolicy policy, Stage& stage, int replicas,
    const std::function<std::unique_ptr<model::Optimizer>()>& own_optimizer) {
  using Apply = ClockedStore::Apply;
  const at::Tensor newest = stage.flat_weights();
  FlatTensors weights = newest.defined() ? stage.parameters_of(newest.clone()) : FlatTensors{};
  const auto make = [&] {
    std::unique_ptr<model::Optimizer> optimizer = own_optimizer();
    optimizer->set_rules(stage.optimizer().rules());
    return optimizer;
  };
  std::unique_ptr<model::Optimizer> optimizer = make();
  optimizer->set_state(stage.optimizer().state());
  switch (policy) {
    case plan::WeightPolicy::downpour:
      return std::make_unique<DownpourStore>(std::move(weights), std::move(optimizer));
    case plan::WeightPolicy::ssp:
      return std::make_unique<ClockedStore>(std::move(weights), std::move(optimizer), Apply::each);
    case plan::WeightPolicy::server:
      return std::make_unique<ClockedStore>(std::move(weights), std::move(optimizer), Apply::sum);
    case plan::WeightPolicy::hogwild: {
      std::vector<std::unique_ptr<model::Optimizer>> optimizers;
      for (int r = 0; r < replicas; ++r) optimizers.push_back(make());
      return std::make_unique<HogwildStore>(std::move(weights), std::move(optimizers));
    }
    default: break;
  }
  throw Error(ErrorKind::internal,
              "weight policy " + std::string(name_of(policy)) + " has no parameter server");
}

void Replica::before_forward(Stage& stage) {
  if (!within_) begin(stage);
}

void Replica::begin(Stage& stage) {
  within_ = true;
  server_.begin(place_, count_ % periods_.fetch == 0 ? stage.flat_weights() : at::Tensor());
}

void Replica::update(Stage& stage, double rate) {
  if (!within_) begin(stage);  // a step without micro-batches
  within_ = false;
  ++count_;
  rate_ = rate;
  const FlatTensors gradient = stage.update_gradient();
  if (!gradient.flat.defined()) return server_.finish(place_, nullptr, rate);
  const bool pushes = count_ % periods_.push == 0;
  if (sum_.flat.defined()) {
    sum_.flat.add_(gradient.flat);
  } else if (!pushes) {
    sum_ = stage.parameters_of(gradient.flat.clone());
  }
  server_.finish(place_, !pushes ? nullptr : sum_.flat.defined() ? &sum_ : &gradient, rate);
  if (pushes) sum_ = {};
  if (count_ % periods_.fetch != 0) stage.flat_weights().add_(gradient.flat, -rate);
  stage.drop_update();
}

void Replica::leave(Stage& stage) {
  server_.leave(place_, sum_.flat.defined() ? &sum_ : nullptr, rate_, stage.flat_weights(),
                place_ == 0 ? &stage.optimizer() : nullptr);
  sum_ = {};
  count_ = 0;
}

}  // namespace pp::run
