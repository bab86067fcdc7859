// pp-plan simulate: a plan's step, or a schedule by itself, by the event simulator, as figures and pictures.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/pictures.h"
#include "apps/plan/schedule_options.h"
#include "apps/plan/tables.h"
#include "libplan/price/predict.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/program_text.h"
#include "libplan/schedule/queues.h"
#include "libplan/search/planner.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {
namespace {

struct SimulateOptions {
  std::string plan;
  int updates = 1;
  PictureOptions pictures;
  ScheduleOptions schedule;
  bool programs = false;
  std::string to_csv;
  std::optional<int> queues;
  std::string speed;
};

constexpr auto kSimulate =
    options(option<&SimulateOptions::plan>("plan", "a plan.json", {.value = "PLAN"}),
            option<&SimulateOptions::updates>(
                "--updates", "optimizer updates to simulate, for asynchronous plans", {.least = 1}),
            option<&SimulateOptions::speed>(
                "--speed",
                "the plan on slower or faster devices: NODE=FACTOR or DEVICE=FACTOR, such as host1=0.8,3=0.5",
                {.value = "NAME=X,.."}),
            option<&SimulateOptions::programs>("--programs", "also every worker's operations"),
            option<&SimulateOptions::to_csv>(
                "--to-csv", "write the programs in PyTorch's exchange form; - for stdout", {.value = "FILE"}),
            option<&SimulateOptions::queues>(
                "--queues", "check that queues of so many messages suffice; 0: blocking sends", {.least = 0}));

/// `node1=0.8,3=0.5`, per worker: of a node, or of a device by its number. 1 for the others.
std::vector<double> speeds_of(const plan::Plan& plan, const std::string& text) {
  constexpr double kMost = 100;
  std::vector<double> speeds(plan.workers.size(), 1);
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t sign = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, sign);
    const char* const end = part.data() + part.size();
    double speed = 0;
    const char* const last =
        sign == part.size() ? end : std::from_chars(part.data() + sign + 1, end, speed).ptr;
    if (last != end || !(speed > 0 && speed <= kMost)) {
      throw Error(ErrorKind::usage,
                  "--speed " + part + ": give NODE=FACTOR or DEVICE=FACTOR, a factor above 0 and at most 100");
    }
    bool found = false;
    for (std::size_t w = 0; w < speeds.size(); ++w) {
      const Device& device = plan::device_of(plan, WorkerId{static_cast<int>(w)});
      if (device.node != name && std::to_string(number(device.id)) != name) continue;
      speeds[w] = speed;
      found = true;
    }
    if (!found)
      throw Error(ErrorKind::usage,
                  "--speed " + part + ": no worker of the plan is on a node or device of that name");
  }
  return speeds;
}

std::string figures_text(const plan::SimulationResult& result, bool counts) {
  return "makespan " + to_text(result.makespan) + ", bubble " + cli::percent(result.bubble_fraction) +
         (counts ? " (1 - busy/(workers * makespan)), " + counted(std::ssize(result.ops), "operation") + ", " +
                       counted(std::ssize(result.messages), "message")
                 : "") +
         "\n";
}

Json to_json(const plan::SimulationResult& result) {
  Json json{{"makespan_s", result.makespan.count()},
            {"bubble_fraction", result.bubble_fraction},
            {"workers", Json::array()}};
  for (std::size_t w = 0; w < result.busy.size(); ++w) {
    json["workers"].push_back(
        {{"busy_s", result.busy[w].count()}, {"peak_bytes", result.memory[w].peak.value}});
  }
  return json;
}

Json programs_json(const plan::ProgramSet& set) {
  Json programs = Json::array();
  for (const plan::Program& program : set.workers) programs.push_back(plan::to_text(program));
  return programs;
}

/// Times in the unit of --costs.
Json to_json(const plan::ScheduleFigures& figures, bool programs) {
  Json json{{"makespan", figures.result.makespan.count()},
            {"makespan_bound", figures.makespan_bound.count()},
            {"bubble_fraction", figures.result.bubble_fraction},
            {"peak_in_flight", figures.peak_in_flight},
            {"steady_period", nullptr}};
  if (figures.steady_period) json["steady_period"] = figures.steady_period->count();
  if (!figures.search.empty()) json["search"] = figures.search;
  if (programs) json["programs"] = programs_json(figures.input.programs);
  return json;
}

std::string peaks_text(const std::vector<double>& peaks) {
  std::string text;
  for (const double peak : peaks) text.append(text.empty() ? "" : " ").append(cli::cell(peak));
  return text;
}

std::string figures_text(const plan::ScheduleStudy& study, const plan::ScheduleFigures& figures, bool counts) {
  std::string text = figures_text(figures.result, counts);
  if (figures.steady_period) {
    text += std::string(figures.input.programs.synchronous ? "chained steps" : "steady state") + ": " +
            to_text(*figures.steady_period) +
            (figures.input.programs.synchronous ? " per step\n" : " per micro-batch\n");
  }
  text += "no order of these operations takes less than " + to_text(figures.makespan_bound) + " (gap " +
          cli::percent(figures.result.makespan / figures.makespan_bound - 1) + ")\n";
  if (!figures.search.empty()) text += "order: " + figures.search + '\n';
  text += "in flight at most, in shares of a worker: " + peaks_text(figures.peak_in_flight) + '\n';
  if (study.programs || study.costs.communication > 0 || study.costs.backward) return text;
  const plan::ShareTimes times{study.costs.forward, study.costs.input_gradient, study.costs.weight_gradient};
  if (const auto form = plan::closed_form(study.request, times)) {
    text += "by formula: makespan " + to_text(Seconds(form->makespan)) + ", bubble " +
            cli::percent(form->bubble_fraction) + '\n';
  }
  return text;
}

void simulate_plan(const SimulateOptions& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  PictureFiles files(options.pictures);
  const auto input = [&] { return plan::simulation_input(plan, options.updates); };
  const plan::SimulationInput planned = with_context(cli::input_name(options.plan), input);
  const Simulated simulated =
      simulate_all(picture_names(plan),
                   options.speed.empty() ? planned : plan::at_speeds(planned, speeds_of(plan, options.speed)));
  files.write({&simulated, 1});
  if (files.take_stdout()) return;
  if (shell.json) {
    std::cout << dump_json(to_json(simulated.result));
    return;
  }
  std::cout << figures_text(simulated.result, shell.verbosity > 0);
  if (!options.speed.empty()) std::cout << "as planned " << to_text(plan::simulate(planned).makespan) << '\n';
  std::cout << timeline(simulated, options.pictures, cli::use_color(shell));
}

std::string study_title(const ScheduleOptions& options) {
  if (!options.csv.empty()) return cli::input_name(options.csv);
  const plan::ScheduleRequest& request = options.study.request;
  return request.name + ", " + counted(request.micro_batches, "micro-batch");
}

void simulate_schedule(const SimulateOptions& options, const cli::Shell& shell) {
  const plan::ScheduleStudy study = study_of(options.schedule);
  cli::Output csv(options.to_csv);
  PictureFiles files(options.pictures);
  const auto run = [&] { return plan::study_schedule(study); };
  const plan::ScheduleFigures figures =
      options.schedule.csv.empty() ? run() : with_context(cli::input_name(options.schedule.csv), run);
  if (const std::string warning = study.programs ? "" : plan::schedule_warning(study.request); !warning.empty())
    cli::warn(warning);
  if (options.queues) plan::check_queues(figures.input.programs, *options.queues);
  csv.write(plan::to_csv(figures.input.programs));
  const Simulated simulated = simulate_all({.title = study_title(options.schedule)}, figures.input);
  files.write({&simulated, 1});
  if (files.take_stdout() || csv.is_stdout()) return;
  if (shell.json) {
    std::cout << dump_json(to_json(figures, options.programs));
    return;
  }
  std::cout << figures_text(study, figures, shell.verbosity > 0)
            << timeline(simulated, options.pictures, cli::use_color(shell));
  if (!options.programs) return;
  for (const plan::Program& program : figures.input.programs.workers)
    std::cout << plan::to_text(program) << '\n';
}

void simulate(const SimulateOptions& options, const cli::Shell& shell) {
  if (!options.plan.empty()) return simulate_plan(options, shell);
  if (!options.speed.empty()) throw Error(ErrorKind::usage, "--speed is of a plan's devices; name a plan.json");
  if (options.schedule.study.request.name.empty() && options.schedule.csv.empty())
    throw Error(ErrorKind::usage, "nothing to simulate; name a plan.json, --schedule NAME, or --csv FILE");
  simulate_schedule(options, shell);
}

}  // namespace

void add_simulate(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "simulate", "simulate a plan's step, or a schedule by itself", kSimulate, simulate,
      {"pp-plan simulate plan.json --svg step.svg", "pp-plan simulate plan.json --trace trace.json",
       "pp-plan simulate --schedule zb-h1 --stages 4 --micro-batches 8 --costs F=1,I=1,W=1,comm=0.1 --json"},
      [](const cli::Command& command, SimulateOptions& options) {
        add_picture_options(command, options.pictures);
        add_schedule_options(command, options.schedule);
      });
}

}  // namespace pp::plan_tool
