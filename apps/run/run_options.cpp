// The options that several commands of pp-run share.
#include "apps/run/run_options.h"

#include <filesystem>
#include <system_error>

#include "apps/cli/options.h"
#include "apps/cli/output.h"

namespace pp::run_tool {

namespace {

constexpr auto kPlan =
    options(option<&PlanFiles::plan>("plan", "a plan.json", {.value = "PLAN", .required = true}),
            option<&PlanFiles::model>(
                "--model", "the plan's model as import-torch wrote it with weights, for plans of --plan-only",
                {.group = "Model", .value = "FILE"}));

constexpr auto kRestart = options(
    option<&RestartOptions::attempts>(
        "--attempts",
        "with --keep-going: give up after so many starts in a row without a new checkpoint; default: 3",
        {.group = "Keep going", .value = "N", .least = 1, .most = 1'000'000}),
    option<&RestartOptions::rebalance>(
        "--rebalance",
        "with --keep-going: where devices are slower than planned, go on with a plan for their speeds after a "
        "checkpoint, if that repays the restart within this time (10min)"),
    option<&RestartOptions::profile>(
        "--profile", "with --keep-going: the profile that the plan was made from, for new plans",
        {.value = "FILE"}));

/// A setting that several optimizers have is one option.
void add_optimizer_options(const cli::Command& command, OptimizerSettings& settings) {
  static constexpr OptionRow kNumber{{.least = 0}, "", "", &detail::kOptionType<double>};
  const cli::Check number{[](const std::string& text) { return problem_of(kNumber, text); }, "NUMBER",
                          "number"};
  for (const OptimizerRow& row : kOptimizerRows) {
    for (const OptimizerSetting& setting : row.settings) {
      const std::string option = option_of(setting.name), name(setting.name);
      if (settings.contains(name)) continue;
      std::optional<double>& value = settings[name];
      if (setting.range == OptimizerSetting::Range::flag)
        command.add_flag(option, value, help_of(name)).group("Training");
      else
        command.add_option(option, value, help_of(name)).check(number).default_str("").group("Training");
    }
  }
}

}  // namespace

plan::Plan load(const PlanFiles& files) {
  plan::Plan plan = cli::load(files.plan, plan::parse_plan);
  if (files.model.empty()) return plan;
  const ModelGraph model = cli::load(files.model, parse_model);
  with_context(cli::input_name(files.model), [&] { plan::require_model(plan, model); });
  plan.model = model;
  return plan;
}

void add_plan_options(const cli::Command& command, PlanFiles& files) {
  cli::add_options(command, kPlan, files);
}

void add_run_options(const cli::Command& command, PlanAndOptions& options) {
  add_plan_options(command, options.files);
  cli::add_options(command, run::execution_options(), options.run);
  cli::add_options(command, run::training_options(), options.run);
  add_optimizer_options(command, options.run.optimizer);
}

void add_restart_options(const cli::Command& command, RestartOptions& options, const std::string& when) {
  command.add_flag("--keep-going", options.keep_going, when).group(std::string(kRestart.front().group));
  cli::add_options(command, kRestart, options);
}

void check_restart(const RestartOptions& options) {
  if (const OptionRow* given = first_given(kRestart, options); given && !options.keep_going)
    throw Error(ErrorKind::usage, name_of(*given) + " belongs to --keep-going; add that");
  if (options.rebalance && options.profile.empty())
    throw Error(ErrorKind::usage,
                "--keep-going: --rebalance plans anew with the profile that the plan was made from; give it "
                "with --profile FILE");
}

std::optional<Profile> load_profile(const RestartOptions& options, const plan::Plan& plan) {
  if (options.profile.empty()) return std::nullopt;
  Profile profile = cli::load(options.profile, parse_profile);
  with_context(options.profile, [&] { plan::require_whole_profile(plan, profile); });
  return profile;
}

void claim_data(const run::ExecutionOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(options.data, ignored)) cli::claim_input(options.data);
  for (const auto& file : std::filesystem::directory_iterator(options.data, ignored))
    cli::claim_input(file.path().string());
  if (std::filesystem::is_regular_file(options.initial_weights, ignored))
    cli::claim_input(options.initial_weights.string());
}

}  // namespace pp::run_tool
