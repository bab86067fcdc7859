#include "libplan/report/throughput.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "libplan/cost/links.h"
#include "libplan/price/predict.h"
#include "libplan/search/planner.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/model/product_flops.h"

namespace pp::plan {

namespace {

/// How often a stage does what, over all its workers: in a step, or in a round of its stream.
struct Passes {
  double forwards = 0, recomputed = 0;
  bool backward = false;
  /// Share of its forwards that run a second time.
  double again() const { return forwards > 0 ? recomputed / forwards : 0; }
};

std::vector<Passes> passes_of(const Plan& plan) {
  std::vector<Passes> passes(plan.stages.size());
  for (const Worker& worker : plan.workers) {
    const auto& stream = worker.program.stream;
    for (const Op& op : stream ? stream->body : worker.program.program) {
      if (!has_micro_batch(op.kind)) continue;
      Passes& stage = passes[at(number(op.stage))];
      if (op.kind == OpKind::forward) ++stage.forwards;
      if (op.kind == OpKind::recompute) ++stage.recomputed;
      if (completes_backward(op.kind)) stage.backward = true;
    }
  }
  return passes;
}

/// Of a sample: what the model asks for, and what the devices do.
struct SampleFlops {
  double model = 0, hardware = 0, masked = 0;
};

/// The layers whose forwards the times of a profile with checkpoints hold once more.
std::set<std::string_view> checkpointed_layers(const Plan& plan) {
  std::set<std::string_view> names;
  const auto said = plan.context.find("checkpoint");
  if (said == plan.context.end()) return names;
  const std::vector<Layer>& layers = plan.model.layers;
  if (said->second == "attention") {
    for (const Layer& layer : layers)
      if (layer.op.ends_with("attention")) names.insert(layer.name);
  } else if (said->second == "blocks") {
    for (const Block& block : blocks_of(plan.model))
      for (int l = block.begin; l < block.end; ++l) names.insert(layers[at(l)].name);
  }
  return names;
}

SampleFlops sample_flops(const Plan& plan, const ResolvedModel& model) {
  const std::set<std::string_view> checkpointed = checkpointed_layers(plan);
  const std::vector<PassFlops> layers = product_flops(model);
  const std::vector<Passes> passes = passes_of(plan);
  std::map<std::string_view, const PassFlops*> by_name;
  for (std::size_t l = 0; l < layers.size(); ++l) by_name[plan.model.layers[l].name] = &layers[l];
  SampleFlops sum;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const std::string& layer : plan.stages[s].layers) {
      const PassFlops& flops = *by_name.at(layer);
      const double asked = flops.forward + (passes[s].backward ? flops.backward : 0);
      sum.model += asked;
      sum.masked += passes[s].backward ? flops.masked : flops.masked / 3;
      sum.hardware += asked + (passes[s].again() + (checkpointed.contains(layer) ? 1 : 0)) * flops.forward;
    }
    for (const std::string& layer : plan.stages[s].recompute) sum.hardware += by_name.at(layer)->forward;
  }
  return sum;
}

void require_tokens(const TrainingBudget& budget, const ResolvedModel& model) {
  if (!budget.tokens || tokens_per_sample(model) > 0) return;
  throw Error(ErrorKind::usage, "--tokens: no embedding of " + model.graph.name +
                                    " looks up its data, so it has no tokens; give --samples");
}

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, arguments...);
  return text.data();
}

/// Four significant digits, without an exponent below 1e7.
std::string digits(double value) {
  if (value < 1e4) return formatted("%.4g", value);
  if (value >= 1e7) return formatted("%.3g", value);
  const double unit = value < 1e5 ? 10 : value < 1e6 ? 100 : 1000;
  return formatted("%.0f", std::round(value / unit) * unit);
}

/// `312.4 TFLOP/s`: four significant digits.
std::string flops_text(double per_s) {
  constexpr std::array kUnits{std::pair{1e12, "TFLOP/s"}, std::pair{1e9, "GFLOP/s"}, std::pair{1e6, "MFLOP/s"}};
  const auto* unit = std::ranges::find_if(kUnits, [&](const auto& u) { return per_s >= u.first; });
  if (unit == kUnits.end()) --unit;
  return digits(per_s / unit->first) + " " + unit->second;
}

const char* device_word(const Throughput& t) { return t.kind == DeviceKind::cuda ? "GPU" : "device"; }
const char* item_word(const Throughput& t) { return t.of_tokens() ? "tokens" : "samples"; }

/// `; 42.1 % without pairs that a causal mask hides`, where these are many.
std::string masked_text(const Throughput& t, double share) {
  constexpr double kMany = 0.2;
  if (t.masked_share <= kMany) return "";
  return formatted("; %.1f %% without pairs that a causal mask hides", 100 * share * (1 - t.masked_share));
}

std::string flops_line(const Throughput& t) {
  const double devices = t.devices;
  std::string text =
      flops_text(t.model_flops_per_s / devices) + " per " + device_word(t) + " of the model's products";
  if (const auto share = t.model_utilisation())
    text += formatted(" (MFU %.1f %% of ", 100 * *share) + flops_text(*t.peak_flops_per_s) +
            masked_text(t, *share) + ")";
  if (t.hardware_flops_per_s > t.model_flops_per_s) {
    text += ", " + flops_text(t.hardware_flops_per_s / devices) + " with what runs again";
    if (const auto share = t.hardware_utilisation()) text += formatted(" (HFU %.1f %%)", 100 * *share);
  }
  return text + '\n';
}

/// `whole` - `part`, without the rounding of sums.
Seconds remainder(Seconds whole, Seconds part) {
  constexpr double kRounding = 1e-9;
  const Seconds rest = whole - part;
  return rest > kRounding * whole ? rest : Seconds{};
}

SimulationInput without_links(SimulationInput input) {
  input.links.clear();
  input.all_reduce = AllReduceMode::free;
  return input;
}

/// From or to one worker or shared network card, all its messages of a step.
std::map<std::string, Seconds> port_loads(const Plan& plan) {
  const Cluster cluster = cluster_of(plan);
  const auto position = [&](WorkerId id) {
    const DeviceId device = plan.workers[index(id)].device;
    return static_cast<int>(std::ranges::find(cluster.devices, device, &Device::id) - cluster.devices.begin());
  };
  const NetworkCards cards = network_cards(cluster);
  std::map<std::string, Seconds> loads;
  for (const LinkPrediction& sent : plan.predicted.links) {
    const Link link = link_between(cluster, position(sent.from), position(sent.to));
    const Seconds time(occupancy(static_cast<double>(sent.bytes_per_step.value), link));
    const auto add = [&](const std::string& what, const std::string& whose, int from, int to) {
      const bool half = link.duplex == Duplex::half;
      loads[what + (half ? " of " : " into ") + whose + std::to_string(to)] += time;
      loads[what + (half ? " of " : " out of ") + whose + std::to_string(from)] += time;
    };
    add("the link", "worker ", number(sent.from), number(sent.to));
    const int from = position(sent.from), to = position(sent.to);
    if (!cards.between(from, to)) continue;
    const auto card = [&](int device) { return cards.of[at(device)]; };
    add("the network card", cards.per_group > 1 ? "card " : "node ", card(from), card(to));
  }
  return loads;
}

/// Whether the layers follow each other in the model's file.
bool is_range(const Plan& plan, const std::vector<std::string>& layers) {
  const auto first = std::ranges::find(plan.model.layers, layers.front(), &Layer::name);
  return plan.model.layers.end() - first >= std::ssize(layers) &&
         std::ranges::equal(layers, std::span(first, layers.size()), {}, {}, &Layer::name);
}

/// `stage 0 (a)`, `stage 0 (a .. c)`, or, where b runs elsewhere, `stage 0 (a .. c, 2 layers)`
std::string stage_name(const Plan& plan, std::size_t s) {
  const std::vector<std::string>& layers = plan.stages[s].layers;
  std::string range = layers.front();
  if (layers.size() > 1) range += " .. " + layers.back();
  if (!is_range(plan, layers)) range += ", " + std::to_string(layers.size()) + " layers";
  return "stage " + std::to_string(s) + " (" + range + ")";
}

}  // namespace

std::optional<double> Throughput::share_of_peak(double flops_per_s) const {
  if (!peak_flops_per_s || flops_per_s <= 0) return std::nullopt;
  return flops_per_s / devices / *peak_flops_per_s;
}

std::optional<double> Throughput::cost_per_million() const {
  if (!price_per_hour) return std::nullopt;
  return *price_per_hour * devices / 3600 / items_per_s() * 1e6;
}

std::optional<Seconds> Throughput::duration() const {
  if (!samples) return std::nullopt;
  return Seconds(*samples / samples_per_s);
}

std::optional<double> Throughput::cost() const {
  if (!price_per_hour || !samples) return std::nullopt;
  return *price_per_hour * devices * duration()->count() / 3600;
}

void check_budget(const TrainingBudget& budget, const ModelGraph& model) {
  if (budget.tokens) require_tokens(budget, resolve(model));
}

Throughput throughput_of(const Plan& plan, const TrainingBudget& budget) {
  const ResolvedModel model = resolve(plan.model);
  Throughput t;
  t.kind = plan.devices.front().kind;
  t.devices = gpu_count(plan);
  t.samples_per_s = plan.predicted.samples_per_s;
  t.tokens_per_sample = static_cast<double>(tokens_per_sample(model));
  const SampleFlops flops = sample_flops(plan, model);
  t.model_flops_per_s = t.samples_per_s * flops.model;
  t.hardware_flops_per_s = t.samples_per_s * flops.hardware;
  if (flops.model > 0) t.masked_share = flops.masked / flops.model;
  t.peak_flops_per_s = plan.peak_flops_per_s;
  t.price_per_hour = budget.price_per_hour;
  t.samples = budget.samples;
  require_tokens(budget, model);
  if (budget.tokens) t.samples = *budget.tokens / t.tokens_per_sample;
  return t;
}

std::string to_text(const Throughput& t) {
  if (!t.speaks()) return "";
  const std::string device = device_word(t), items = item_word(t);
  std::string text;
  if (t.of_tokens())
    text +=
        digits(t.items_per_s()) + " tokens/s, " + digits(t.items_per_s() / t.devices) + " per " + device + '\n';
  if (t.model_flops_per_s > 0) text += flops_line(t);
  if (t.price_per_hour) {
    text += digits(*t.cost_per_million()) + " per million " + items + " at " + digits(*t.price_per_hour) +
            " per " + device + " and hour\n";
  }
  if (t.samples) {
    const double all = *t.samples * (t.of_tokens() ? t.tokens_per_sample : 1);
    text += digits(all) + " " + items + " in " + digits(t.duration()->count() / 86400) + " days";
    if (const auto cost = t.cost()) text += " for " + digits(*cost);
    text += '\n';
  }
  return text;
}

Json to_json(const Throughput& t) {
  Json json{{"devices", t.devices}, {"samples_per_s", t.samples_per_s}};
  const auto add = [&](const std::string& key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  if (t.of_tokens()) {
    add("tokens_per_s", t.items_per_s());
    add("tokens_per_s_per_device", t.items_per_s() / t.devices);
  }
  if (t.model_flops_per_s > 0) {
    add("model_flops_per_s_per_device", t.model_flops_per_s / t.devices);
    add("hardware_flops_per_s_per_device", t.hardware_flops_per_s / t.devices);
  }
  add("peak_flops_per_s", t.peak_flops_per_s);
  if (t.masked_share > 0) json["masked_share"] = t.masked_share;
  add("mfu", t.model_utilisation());
  add("hfu", t.hardware_utilisation());
  add("price_per_hour", t.price_per_hour);
  add(std::string("cost_per_million_") + item_word(t), t.cost_per_million());
  if (const auto time = t.duration()) add("duration_s", time->count());
  add("cost", t.cost());
  return json;
}

StepParts step_parts(const Plan& plan) {
  const bool synchronous = require_schedule(plan.schedule.name).synchronous;
  const int updates = synchronous ? 1 : steady_updates(plan);
  const SimulationInput free = without_links(simulation_input(plan, updates));
  const Seconds step = synchronous ? chained_period(free) : steady_period(free) * plan.training.micro_batches;
  const std::vector<Seconds> busy = simulate(free).busy;
  const Seconds compute = *std::ranges::max_element(busy) / updates;
  return {compute, remainder(plan.predicted.step, std::max(step, compute)), remainder(step, compute)};
}

std::vector<Load> loads_of(const Plan& plan) {
  std::vector<Load> loads;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    Load load{stage_name(plan, s), {}};
    for (const WorkerId worker : plan.stages[s].workers)
      load.busy = std::max(load.busy, plan.predicted.workers[index(worker)].busy);
    loads.push_back(std::move(load));
  }
  const std::map<std::string, Seconds> ports = port_loads(plan);
  const auto busiest = std::ranges::max_element(ports, {}, [](const auto& port) { return port.second; });
  if (busiest != ports.end() && busiest->second > Seconds{}) loads.push_back({busiest->first, busiest->second});
  return loads;
}

}  // namespace pp::plan
