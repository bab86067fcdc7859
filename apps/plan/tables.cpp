#include "apps/plan/tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/plan/stage_table.h"
#include "libplan/plan/programs.h"
#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {
namespace {

using plan::Plan;

double ms(Seconds time) { return 1e3 * time.count(); }
double mib(Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 20); }

/// Compute of each stage per micro-batch, shared by its replicas; empty for a plan without predictions.
std::vector<double> stage_times(const Plan& plan) {
  std::vector<double> times;
  for (std::size_t s = 0; s < plan.predicted.stages.size(); ++s) {
    const plan::StageCosts& costs = plan.predicted.stages[s];
    times.push_back((costs.forward + costs.backward).count() /
                    static_cast<double>(plan.stages[s].workers.size()));
  }
  return times;
}

/// What the formulas of libplan/schedule/closed_forms.h say beside the simulation.
std::string formulas_text(const Plan& plan) {
  const std::vector<double> stages = stage_times(plan);
  if (stages.empty()) return "";
  std::string text = "partition efficiency " + cli::percent(plan::partition_efficiency(stages)) +
                     " (sum of the stages / (number * slowest))";
  if (plan::require_schedule(plan.schedule.name).keeps_all && plan.workers.size() == plan.stages.size()) {
    std::vector<double> forward;
    std::vector<double> backward;
    for (const plan::StageCosts& costs : plan.predicted.stages) {
      forward.push_back(costs.forward.count());
      backward.push_back(costs.backward.count());
    }
    text += ", one step by formula " +
            to_text(Seconds(plan::gpipe_makespan(forward, backward, plan.training.micro_batches))) +
            " without transfers and update";
  }
  return text + '\n';
}

/// `run again to save memory: stage 0 as a whole; stage 2 attention gelu`, or, not `named`, `stage 2 2 layers`;
/// empty: nothing does.
std::string recompute_line(const Plan& plan, bool named) {
  if (const auto said = plan.context.find("checkpoint"); said != plan.context.end())
    return "run again to save memory, in their backwards: " +
           (said->second.starts_with("first ") ? "" : std::string("all ")) + said->second + '\n';
  const auto whole = plan::whole_recomputes(plan);
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<std::string>& layers = plan.stages[s].recompute;
    if (!whole[s] && layers.empty()) continue;
    text += (text.empty() ? "run again to save memory: stage " : "; stage ") + std::to_string(s);
    if (whole[s]) text += " as a whole";
    if (!named && !layers.empty()) text += ' ' + counted(std::ssize(layers), "layer");
    for (const std::string& layer : layers) text += named ? ' ' + layer : "";
  }
  return text.empty() ? text : text + '\n';
}

std::string alternatives_table(const Plan& plan) {
  std::vector<cli::Column> columns{{"schedule", cli::Align::left, cli::Overflow::shorten, 12},
                                   {part_word(plan.model), cli::Align::left, cli::Overflow::shorten, 12},
                                   {"replicas", cli::Align::left},
                                   {"M"},
                                   {"step ms"},
                                   {"peak MiB"},
                                   {"why not", cli::Align::left}};
  const bool groups = std::ranges::any_of(plan.alternatives, [](const auto& a) { return a.tensor_degree > 0; });
  const bool cores = !plan.machines.empty() && !groups;
  if (cores) columns.insert(columns.begin() + 3, {"cores"});
  const bool contexts =
      std::ranges::any_of(plan.alternatives, [](const auto& a) { return a.context_degree > 1; });
  const bool experts =
      std::ranges::any_of(plan.alternatives, [](const auto& a) { return a.expert_degree > 1; });
  const bool shards = std::ranges::any_of(plan.alternatives, [](const auto& a) { return a.shard_degree > 1; });
  if (shards) columns.insert(columns.begin() + 3, {"shards"});
  if (experts) columns.insert(columns.begin() + 3, {"experts"});
  if (contexts) columns.insert(columns.begin() + 3, {"context"});
  if (groups) columns.insert(columns.begin() + 3, {"tensor"});
  cli::Table table(columns);
  for (const plan::Alternative& other : plan.alternatives) {
    const std::string again =
        other.recompute.empty() ? "" : " (again " + counted_runs(other.recompute, '|') + ")";
    std::vector<std::string> cells{other.schedule + again,
                                   counted_runs(blocks_text(plan.model, other.stages), '|'),
                                   counted_runs(other.replicas, '-'),
                                   std::to_string(other.micro_batches),
                                   cli::cell(ms(other.step)),
                                   cli::cell(mib(other.peak)),
                                   other.why_not};
    if (cores) cells.insert(cells.begin() + 3, std::to_string(other.cores_per_device));
    if (shards) cells.insert(cells.begin() + 3, std::to_string(std::max(1, other.shard_degree)));
    if (experts) cells.insert(cells.begin() + 3, std::to_string(std::max(1, other.expert_degree)));
    if (contexts) cells.insert(cells.begin() + 3, std::to_string(std::max(1, other.context_degree)));
    if (groups) cells.insert(cells.begin() + 3, std::to_string(other.tensor_degree));
    table.add(std::move(cells));
  }
  return table.text();
}

/// `calibrated by 2 reports: times of the profile by factors of 0.97 to 1.31; speed of device 1: 0.49`; nothing
/// where the profile counts as it is.
std::string calibration_text(const Plan& plan) {
  if (!plan.calibration) return "";
  std::string text = "calibrated by " + counted(std::ssize(plan.calibration->reports), "report") +
                     ": times of the profile by factors of " + cli::cell(plan.calibration->least, 3) + " to " +
                     cli::cell(plan.calibration->largest, 3);
  for (const plan::MeasuredSpeed& one : plan.calibration->devices) {
    text += "; speed of device " + std::to_string(number(one.device));
    if (!one.node.empty()) text += " of " + cli::shown(one.node);
    text += ": " + cli::cell(one.speed, 3);
  }
  return text + '\n';
}

/// Of the machines that competed, a sentence each.
std::string machines_text(const Plan& plan) {
  std::string text;
  for (const plan::Machine& machine : plan.machines) {
    if (!machine.verdict.empty()) text += machine.verdict + '\n';
  }
  return text;
}

/// `expected 1.01 s per step, 197.1 % above ..`, where what varies decides.
std::string expected_text(const plan::Prediction& predicted) {
  constexpr double kMuch = 0.1;
  if (!predicted.expected_step) return "";
  const double beyond = *predicted.expected_step / predicted.step - 1;
  if (beyond <= kMuch) return "";
  return "expected " + to_text(*predicted.expected_step) + " per step, " + cli::percent(beyond) +
         " above that of the median times: the profile's times vary\n";
}

/// What a reader must know of the search, a line each: schedules left out, an early end. All of it where
/// `whole`.
std::string search_text(const std::string& search, bool whole) {
  if (whole) return search + '\n';
  std::string text;
  for (std::size_t begin = 0; begin < search.size();) {
    const std::size_t end = std::min(search.find("; ", begin), search.size());
    const std::string part = search.substr(begin, end - begin);
    begin = end + 2;
    const bool open = part.find("only estimates") != std::string::npos;  // to who asks for one
    if (part.starts_with("left out: ") || part.starts_with("cut short"))
      text += part + (open ? "; --schedule NAME plans one all the same\n" : "\n");
  }
  return text;
}

/// What is promised and how good it is; of a plan by hand that says neither, nothing.
std::string promise_text(const Plan& plan, bool verbose) {
  const plan::Prediction& predicted = plan.predicted;
  if (predicted.workers.empty()) return "the plan has no prediction (/predicted)\n";
  std::string text = "step " + to_text(predicted.step) + ", " + cli::cell(predicted.samples_per_s) +
                     " samples/s, bubble " + cli::percent(predicted.bubble_fraction) + ", a single step " +
                     to_text(predicted.makespan) + '\n' + expected_text(predicted);
  if (plan.certificate.search.empty()) return text;
  return text + "lower bound " + to_text(plan.certificate.lower_bound) + ", gap " +
         cli::percent(plan.certificate.gap) + '\n' + search_text(plan.certificate.search, verbose);
}

/// Pipelines, each with the groups of its devices that divide samples; or unequal replicas.
std::string data_parallel_text(const Plan& plan, std::size_t depth) {
  const std::size_t replicas = plan.stages.front().workers.size();
  const auto differs = [&](const plan::Stage& stage) { return stage.workers.size() != replicas; };
  if (std::ranges::any_of(plan.stages, differs)) return counted_runs(plan::replicas_text(plan), '-');
  return std::to_string(plan.workers.size() * at(plan::groups_of_samples(plan)) / depth);
}

/// What people compare plans by, in one row: degrees, blocks of each stage, devices, rates and bytes of one.
std::string degrees_table(const Plan& plan, const std::optional<plan::Throughput>& promised) {
  const bool gpus = plan.devices.front().kind == DeviceKind::cuda, tokens = promised && promised->of_tokens();
  const std::string each = gpus ? "/GPU" : "/device";
  cli::Table table({{"TP"},
                    {"CP"},
                    {"EP"},
                    {"DP"},
                    {"PP"},
                    {"VPP"},
                    {part_word(plan.model) + "/stage", cli::Align::left},
                    {gpus ? "GPUs" : "devices"},
                    {(tokens ? "tokens/s" : "samples/s") + each},
                    {(gpus ? "TFLOP/s" : "GFLOP/s") + each},
                    {(gpus ? "GiB" : "MiB") + each}});
  const int chunks = std::max(1, plan.schedule.chunks_per_worker), all = plan::gpu_count(plan);
  const int used = static_cast<int>(plan.workers.size()) * plan::group_size(plan);
  std::vector<std::string> cells;
  for (const int degree : {plan.tensor_degree, plan.context_degree, plan.expert_degree})
    cells.push_back(std::to_string(std::max(1, degree)));
  std::vector<std::vector<std::string>> stages;
  for (const plan::Stage& stage : plan.stages) stages.push_back(stage.layers);
  const std::size_t depth = std::max<std::size_t>(1, plan.stages.size() / at(chunks));
  cells.insert(cells.end(), {data_parallel_text(plan, depth), std::to_string(depth), std::to_string(chunks),
                             counted_runs(blocks_text(plan.model, stages), '|'),
                             std::to_string(used) + (used < all ? " of " + std::to_string(all) : "")});
  Bytes peak;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  if (promised) {
    const double flops = promised->model_flops_per_s / promised->devices / (gpus ? 1e12 : 1e9);
    cells.insert(cells.end(), {cli::cell(promised->items_per_s() / promised->devices),
                               flops > 0 ? cli::cell(flops) : "-", cli::cell(mib(peak) / (gpus ? 1024 : 1))});
  } else {
    cells.insert(cells.end(), 3, "-");
  }
  table.add(std::move(cells));
  return table.text();
}

}  // namespace

std::string plan_title(const Plan& plan) { return cli::shown(plan.model.name) + ": " + plan_description(plan); }

std::string plan_description(const Plan& plan) {
  std::string stages = counted(std::ssize(plan.stages), "stage");
  if (plan.stages.size() == 1)  // whatever the schedule
    stages += plan.workers.size() == 1 ? " (no pipeline)" : " (data parallelism)";
  std::string title = plan.schedule.name + " (" + std::string(name_of(plan.schedule.weight_policy)) + "), " +
                      stages + ", replicas " + counted_runs(plan::replicas_text(plan), '-') + ", mini-batch " +
                      std::to_string(plan.training.mini_batch) + " = " +
                      counted(plan.training.micro_batches, "micro-batch");
  if (plan.tensor_degree > 1) title += ", tensor groups of " + std::to_string(plan.tensor_degree);
  if (plan.context_degree > 1) title += ", context groups of " + std::to_string(plan.context_degree);
  if (plan.shard_group.degree > 1)
    title += std::string(plan.shard_group.sharding == Sharding::full ? ", full" : ", gradient") +
             " shards of " + std::to_string(plan.shard_group.degree);
  if (plan.expert_degree > 1) title += ", experts over " + std::to_string(plan.expert_degree) + " GPUs";
  if (plan.training.products) title += ", products in " + std::string(name_of(*plan.training.products));
  if (plan.training.precision != plan::Precision::plain)
    title += ", precision " + std::string(name_of(plan.training.precision));
  if (plan.training.autocast) title += " to " + std::string(name_of(*plan.training.autocast));
  if (plan.training.shard != plan::Shard::none) title += ", replicas share the optimizer's state";
  return title;
}

std::string plan_text(const Plan& plan, const std::optional<plan::Throughput>& throughput,
                      const cli::Shell& shell) {
  const bool verbose = shell.verbosity > 0;
  std::string text = plan_title(plan) + "\n\n" + degrees_table(plan, throughput) + '\n';
  text += stage_table(plan, cli::use_color(shell), verbose) + '\n';
  text += promise_text(plan, verbose) + (throughput ? plan::to_text(*throughput) : "");
  text += calibration_text(plan) + machines_text(plan);
  text += recompute_line(plan, verbose) + formulas_text(plan);
  if (!plan.alternatives.empty()) text += "\nalternatives:\n" + alternatives_table(plan);
  return text;
}

Json plan_json(const Plan& plan, const std::optional<plan::Throughput>& throughput) {
  Json json = plan::to_json(plan);
  if (throughput && throughput->speaks()) json["throughput"] = plan::to_json(*throughput);
  return json;
}

std::string programs_text(const Plan& plan) {
  std::string text;
  for (const plan::Worker& worker : plan.workers) {
    text += "worker " + std::to_string(number(worker.id)) + ": ";
    if (const auto& stream = worker.program.stream) {
      text += plan::to_text(stream->prologue) + " [" + plan::to_text(stream->body) + "] +" +
              std::to_string(stream->period) + '\n';
    } else {
      text += plan::to_text(worker.program.program) + '\n';
    }
  }
  return text;
}

}  // namespace pp::plan_tool
