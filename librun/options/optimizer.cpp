#include "librun/options/optimizer.h"

#include <algorithm>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

using plan::OptimizerName;

class Values {
 public:
  Values(OptimizerName name, const RunOptions& options) : all_(optimizer_settings(name, options)) {}
  double operator()(std::string_view name) const {
    return std::ranges::find(all_, name, &std::pair<std::string_view, double>::first)->second;
  }

 private:
  std::vector<std::pair<std::string_view, double>> all_;
};

}  // namespace

std::unique_ptr<model::Optimizer> make_optimizer(OptimizerName name, const RunOptions& options) {
  const Values of(name, options);
  const double decay = options.weight_decay;
  const auto adam = [&] {
    return model::AdamOptions{
        .beta1 = of("beta1"), .beta2 = of("beta2"), .epsilon = of("epsilon"), .weight_decay = decay};
  };
  switch (name) {
    case OptimizerName::sgd:
      return model::make_sgd({.momentum = of("momentum"), .weight_decay = decay, .nesterov = options.nesterov});
    case OptimizerName::adam: return model::make_adam(adam());
    case OptimizerName::adamw: return model::make_adamw(adam());
    case OptimizerName::rmsprop:
      return model::make_rmsprop(
          {.alpha = of("alpha"), .epsilon = of("epsilon"), .momentum = of("momentum"), .weight_decay = decay});
    case OptimizerName::adagrad:
      return model::make_adagrad({.lr_decay = of("lr_decay"), .epsilon = of("epsilon"), .weight_decay = decay});
  }
  throw Error(ErrorKind::internal, "no such optimizer");
}

}  // namespace pp::run
