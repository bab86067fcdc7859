#include "apps/plan/tables.h"

#include <algorithm>
#include <cmath>

#include "apps/cli/table.h"

namespace pp::plan_tool {
namespace {

using plan::Plan;
using plan::Stage;

double ms(Seconds time) { return 1e3 * time.count(); }
double mib(Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 20); }

std::string layer_range(const Stage& stage) {
  if (stage.layers.size() == 1) return stage.layers.front();
  return stage.layers.front() + " .. " + stage.layers.back();
}

std::string devices_of(const Plan& plan, const Stage& stage) {
  std::string list;
  for (WorkerId worker : stage.workers) {
    const Device& device = plan.devices[index(plan.workers[index(worker)].device)];
    list.append(list.empty() ? "" : " ").append(to_text(device));
  }
  return list;
}

/// The stage whose workers are busy longest.
std::size_t bottleneck(const Plan& plan) {
  const auto busy = [&](const Stage& stage) {
    Seconds longest{};
    for (WorkerId worker : stage.workers)
      longest = std::max(longest, plan.predicted.workers[index(worker)].busy);
    return longest;
  };
  const auto slower = [&](const Stage& a, const Stage& b) { return busy(a) < busy(b); };
  return static_cast<std::size_t>(std::max_element(plan.stages.begin(), plan.stages.end(), slower) -
                                  plan.stages.begin());
}

std::string stage_table(const Plan& plan, bool color) {
  cli::Table table({{"stage"},
                    {"layers"},
                    {"from .. to", cli::Align::left},
                    {"devices", cli::Align::left},
                    {"busy ms"},
                    {"of step"},
                    {"peak MiB"},
                    {"", cli::Align::left}});
  const std::size_t slowest = bottleneck(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const plan::WorkerPrediction& first = plan.predicted.workers[index(stage.workers.front())];
    const double share = plan.predicted.step.count() > 0 ? first.busy / plan.predicted.step : 0;
    table.add({std::to_string(s), std::to_string(stage.layers.size()), layer_range(stage),
               devices_of(plan, stage), cli::cell(ms(first.busy)), cli::percent(share),
               cli::cell(mib(first.memory.peak)), s == slowest ? cli::colored("<- bottleneck", color) : ""});
  }
  return table.text();
}

std::string alternatives_table(const Plan& plan) {
  cli::Table table({{"schedule", cli::Align::left},
                    {"layers", cli::Align::left},
                    {"replicas", cli::Align::left},
                    {"M"},
                    {"step ms"},
                    {"peak MiB"},
                    {"why not", cli::Align::left}});
  for (const plan::Alternative& other : plan.alternatives) {
    table.add({other.schedule, other.stages, other.replicas, std::to_string(other.micro_batches),
               cli::cell(ms(other.step)), cli::cell(mib(other.peak)), other.why_not});
  }
  return table.text();
}

char letter(plan::OpKind kind, int micro_batch) {
  switch (kind) {
    case plan::OpKind::forward: return static_cast<char>('0' + micro_batch % 10);
    case plan::OpKind::backward: return static_cast<char>('a' + micro_batch % 26);
    case plan::OpKind::input_gradient: return static_cast<char>('a' + micro_batch % 26);
    case plan::OpKind::weight_gradient: return 'w';
    case plan::OpKind::recompute: return 'r';
    case plan::OpKind::all_reduce: return '+';
    case plan::OpKind::update: return '=';
    case plan::OpKind::load: return '<';
    case plan::OpKind::evict: return '>';
  }
  return '?';
}

}  // namespace

std::string plan_text(const Plan& plan, bool color) {
  const plan::Prediction& predicted = plan.predicted;
  std::string text =
      plan.model.name + ": " + plan.schedule.name + " (" + std::string(name_of(plan.schedule.weight_policy)) +
      "), " + std::to_string(plan.stages.size()) + " stage(s), replicas " + plan::replicas_text(plan) +
      ", mini-batch " + std::to_string(plan.training.mini_batch) + " = " +
      std::to_string(plan.training.micro_batches) + " micro-batch(es)\n\n" + stage_table(plan, color) + '\n';
  text += "step " + to_text(predicted.step) + ", " + cli::cell(predicted.samples_per_s) +
          " samples/s, bubble " + cli::percent(predicted.bubble_fraction) + ", one isolated step " +
          to_text(predicted.makespan) + '\n';
  text += "lower bound " + to_text(plan.certificate.lower_bound) + ", objective " +
          to_text(plan.certificate.objective) + ", gap " + cli::percent(plan.certificate.gap) + "  (" +
          plan.certificate.search + ")\n";
  if (!plan.alternatives.empty()) text += "\nalternatives:\n" + alternatives_table(plan);
  return text;
}

std::string timeline(const plan::SimulationResult& result, int width) {
  if (result.makespan.count() <= 0) return "";
  const double per_cell = result.makespan.count() / width;
  std::vector<std::string> rows(result.busy.size(), std::string(static_cast<std::size_t>(width), '.'));
  for (const plan::OpEvent& event : result.ops) {
    const int begin = static_cast<int>(std::lround(event.start.count() / per_cell));
    const int end = static_cast<int>(std::lround(event.end.count() / per_cell));
    for (int c = begin; c < std::min(end, width); ++c) {
      rows[index(event.worker)][static_cast<std::size_t>(c)] = letter(event.op.kind, event.op.micro_batch);
    }
  }
  std::string text = "0 .. " + to_text(result.makespan) +
                     "; digits: forward, letters: backward of the same micro-batch, dots: idle\n";
  for (std::size_t w = 0; w < rows.size(); ++w) text += "worker " + std::to_string(w) + " |" + rows[w] + "|\n";
  return text;
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
