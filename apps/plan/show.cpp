// pp-plan show: plans as text, pictures and a page; pp-plan check: a plan, also one edited by hand, is valid
// in full.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "apps/plan/pictures.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/tables.h"
#include "libplan/explorer/explorer.h"
#include "libplan/plan/plan.h"
#include "libplan/price/predict.h"
#include "libplan/search/planner.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {

namespace {

struct CheckOptions {
  std::string plan;
  std::string profile;
};

constexpr auto kCheck =
    options(option<&CheckOptions::plan>("plan", "a plan.json", {.value = "PLAN", .required = true}),
            option<&CheckOptions::profile>("--profile", "also that the plan was made from this profile",
                                           {.value = "PROFILE"}));

void check(const CheckOptions& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  if (!options.profile.empty()) {
    const Profile profile = cli::load(options.profile, parse_profile);
    with_context(cli::input_name(options.plan), [&] { plan::require_profile(plan, profile); });
  }
  if (shell.json) {
    std::cout << dump_json(Json{{"valid", true}, {"plan_hash", plan::plan_hash(plan)}});
  } else {
    std::cout << cli::input_name(options.plan) << ": valid (" << plan.schedule.name << ", "
              << counted(std::ssize(plan.stages), "stage") << ", "
              << counted(std::ssize(plan.workers), "worker") << ")\n";
  }
}

struct ShowOptions {
  std::vector<std::string> plans;
  std::string html;
  bool timeline = false;
  bool programs = false;
  PictureOptions pictures;
  plan::TrainingBudget budget;
};

constexpr auto kShow =
    options(option<&ShowOptions::plans>("plan", "a plan.json; several share the pictures' time axis",
                                        {.value = "PLAN", .required = true}),
            option<&ShowOptions::timeline>("--timeline", "one step, simulated, as text, with memory over time"),
            option<&ShowOptions::programs>("--programs", "every worker's operations"),
            option<&ShowOptions::html>("--html",
                                       "write one page for a browser to explore, self-contained; - for stdout",
                                       {.group = "Pictures", .value = "FILE"}));

/// A document, by the name of its file.
struct Shown {
  std::string name;
  plan::Plan plan;
};

/// Enough of a stream that filling, steady state and draining are seen.
int updates_to_show(const plan::Plan& plan) {
  const bool synchronous = plan::require_schedule(plan.schedule.name).synchronous;
  return synchronous ? 1 : 3 * static_cast<int>(plan.workers.size());
}

std::vector<Shown> load_plans(const ShowOptions& options) {
  std::vector<Shown> plans;
  for (const std::string& path : options.plans) {
    Shown& shown = plans.emplace_back(Shown{cli::input_name(path), cli::load(path, plan::parse_plan)});
    with_context(shown.name, [&] { plan::check_plan(shown.plan); });
  }
  return plans;
}

std::vector<Simulated> simulate_plans(const std::vector<Shown>& plans) {
  std::vector<Simulated> simulated;
  for (const Shown& shown : plans) {
    const auto input = [&] { return plan::simulation_input(shown.plan, updates_to_show(shown.plan)); };
    plan::SvgOptions names = picture_names(shown.plan);
    if (plans.size() > 1) names.title = shown.name + ": " + names.title;
    simulated.push_back(simulate_all(std::move(names), with_context(shown.name, input)));
  }
  return simulated;
}

/// The title, then devices, rates and money.
std::string headline(const plan::Plan& plan, const plan::TrainingBudget& budget) {
  std::string text = plan_title(plan);
  if (plan.predicted.workers.empty()) return text;
  std::string rates = plan::to_text(plan::throughput_of(plan, budget));
  if (rates.empty()) return text;
  for (std::size_t end = rates.find('\n'); end + 1 < rates.size(); end = rates.find('\n', end))
    rates.replace(end, 1, ", ");
  rates.pop_back();
  return text + ", " + counted(plan::gpu_count(plan), "device") + ", " + rates;
}

std::string page(const std::vector<Shown>& plans, const std::vector<Simulated>& simulated,
                 const plan::TrainingBudget& budget) {
  std::vector<plan::ExplorerPlan> given;
  std::vector<plan::ExplorerTimeline> timelines;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const plan::Plan& plan = plans[p].plan;
    given.push_back({plans[p].name, headline(plan, budget), &plan});
    timelines.push_back({plans[p].name, p, &simulated[p].result, simulated[p].memory, plan.predicted.step,
                         plan.predicted.bubble_fraction});
  }
  return plan::explorer_page(plans.front().plan.model.name + " - pp-plan",
                             plan::explorer_data(given, timelines));
}

void print(const ShowOptions& options, const Shown& shown, const Simulated* simulated,
           const cli::Shell& shell) {
  const plan::Plan& plan = shown.plan;
  std::optional<plan::Throughput> throughput;
  if (!plan.predicted.workers.empty()) throughput = plan::throughput_of(plan, options.budget);
  if (shell.json) {
    std::cout << dump_json(plan_json(plan, throughput));
    return;
  }
  std::cout << plan_text(plan, throughput, shell);
  if (options.programs) std::cout << '\n' << programs_text(plan);
  if (options.timeline) std::cout << '\n' << timeline(*simulated, options.pictures, cli::use_color(shell));
}

void show(const ShowOptions& options, const cli::Shell& shell) {
  const bool several = options.plans.size() > 1;
  if (several && shell.json) {
    throw Error(ErrorKind::usage, "--json prints one plan, but " + std::to_string(options.plans.size()) +
                                      " are given; call pp-plan show for each");
  }
  const std::vector<Shown> plans = load_plans(options);
  PictureFiles files(options.pictures);
  if (several && files.has_trace()) {
    throw Error(ErrorKind::usage, "--trace draws one plan, but " + std::to_string(options.plans.size()) +
                                      " are given; use --svg or --html, or call pp-plan show for each");
  }
  cli::Output html(options.html);
  std::vector<Simulated> simulated;
  if (options.timeline || files.wanted() || html.wanted()) simulated = simulate_plans(plans);
  files.write(simulated);
  if (html.wanted()) html.write(page(plans, simulated, options.budget));
  if (files.take_stdout() || html.is_stdout()) return;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (several) std::cout << (p > 0 ? "\n" : "") << plans[p].name << "\n";
    print(options, plans[p], simulated.empty() ? nullptr : &simulated[p], shell);
  }
}

}  // namespace

void add_check(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "check", "check a plan: stages, workers, programs, memory", kCheck, check,
                   {"pp-plan check plan.json", "pp-plan check plan.json --profile profile.json",
                    "pp-plan check plan.json --json"});
}

void add_show(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "show", "print plans: stages, promise, bound, alternatives; draw them", kShow,
                   show,
                   {"pp-plan show plan.json --programs --timeline", "pp-plan show plan.json --svg step.svg",
                    "pp-plan show plan.json other.json --html plans.html"},
                   [](const cli::Command& command, ShowOptions& options) {
                     add_budget_options(command, options.budget);
                     add_picture_options(command, options.pictures);
                   });
}

}  // namespace pp::plan_tool
