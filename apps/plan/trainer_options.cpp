#include "apps/plan/trainer_options.h"

#include <algorithm>

#include "apps/cli/log.h"
#include "apps/cli/options.h"

namespace pp::plan_tool {

void add_trainer_option(const cli::Command& command, std::optional<plan::Trainer>& trainer) {
  command
      .add_option_function(
          "--for",
          [&trainer](const std::string& text) { trainer = cli::typed_name<plan::Trainer>(text, "--for"); },
          "search only plans that this trainer can run: " + list_names<plan::Trainer>())
      .type_name("TRAINER")
      .group("Search");
}

plan::PlanRequest trainer_request(plan::Trainer trainer, plan::PlanRequest request, const RequestOptions& given,
                                  const Profile& profile) {
  if (given.optimizer && given.optimizer->count() == 0) request.optimizer = plan::OptimizerName::adamw;
  if (given.precision && given.precision->count() == 0 && profile.dtype == DType::bfloat16)
    request.precision = plan::Precision::mixed;
  plan::check_model(trainer, profile);
  return plan::for_trainer(trainer, std::move(request), profile.dtype);
}

void introduce(plan::Trainer trainer, const RequestOptions& given, const Profile& profile) {
  if (given.optimizer && given.optimizer->count() == 0)
    cli::inform("--for " + std::string(name_of(trainer)) + " plans with --optimizer adamw, as none is given");
  if (!plan::caveat_of(trainer).empty()) cli::warn(plan::caveat_of(trainer));
  if (profile.trainer && !plan::goes_with(trainer, profile.trainer->name)) {
    cli::warn("--for " + std::string(name_of(trainer)) + ": the profile's times are of steps by " +
              profile.trainer->name + "; estimate with --trainer " + std::string(name_of(trainer)));
  }
}

std::optional<int> divisible_mini_batch(int mini_batch, int devices) {
  if (mini_batch % devices == 0) return std::nullopt;
  return std::max(1, (mini_batch + devices / 2) / devices) * devices;
}

}  // namespace pp::plan_tool
