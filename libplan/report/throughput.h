// What a plan promises in the words of those who pay for it: tokens, FLOP/s and utilisation of a device, money
// and days; and where the time of its step goes: work, links, or waiting. Follows from the plan alone, by
// simulating it again, and changes no plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"

namespace pp::plan {

/// What is asked of a training as a whole.
struct TrainingBudget {
  std::optional<double> price_per_hour;  ///< of one device, used or not, in any currency
  std::optional<double> tokens;          ///< to train on in all; at most one of the two
  std::optional<double> samples;
  bool operator==(const TrainingBudget&) const = default;
};

/// Rates are of all devices together; a device is a GPU, also where tensor groups join several.
struct Throughput {
  DeviceKind kind = DeviceKind::cpu;
  int devices = 1;  ///< of the cluster, whether the plan uses them or not
  double samples_per_s = 0;
  double tokens_per_sample = 0;     ///< 0: the model has no tokens
  double model_flops_per_s = 0;     ///< product_flops(); 0: not known
  double hardware_flops_per_s = 0;  ///< and the forwards that run again
  double masked_share = 0;          ///< of the model's FLOPs: pairs of positions that a causal mask hides
  std::optional<double> peak_flops_per_s = {};  ///< of a device
  std::optional<double> price_per_hour = {};    ///< of a device
  std::optional<double> samples = {};           ///< to train on in all
  bool operator==(const Throughput&) const = default;

  bool of_tokens() const { return tokens_per_sample > 0; }
  /// Of what people count: tokens, or samples of a model without.
  double items_per_s() const { return samples_per_s * (of_tokens() ? tokens_per_sample : 1); }
  /// Share of the peak of all devices that model FLOPs make (MFU; Chowdhery et al., PaLM, 2022, appendix B).
  std::optional<double> model_utilisation() const { return share_of_peak(model_flops_per_s); }
  /// The same with what runs again (HFU).
  std::optional<double> hardware_utilisation() const { return share_of_peak(hardware_flops_per_s); }
  std::optional<double> cost_per_million() const;  ///< items
  std::optional<Seconds> duration() const;
  std::optional<double> cost() const;
  /// Whether there is more to say than samples per second.
  bool speaks() const { return of_tokens() || peak_flops_per_s || price_per_hour || samples; }

 private:
  std::optional<double> share_of_peak(double flops_per_s) const;
};

/// Throws pp::Error (usage) for a budget of tokens where the model has none.
void check_budget(const TrainingBudget& budget, const ModelGraph& model);

/// `plan` has a prediction. Throws as check_budget().
Throughput throughput_of(const Plan& plan, const TrainingBudget& budget);

/// A line each for tokens, FLOP/s, price and the whole training, as far as they are known; nothing where
/// speaks() says no.
std::string to_text(const Throughput& throughput);
Json to_json(const Throughput& throughput);

/// Adds up to the step.
struct StepParts {
  Seconds compute{};  ///< operations of the busiest worker, all-reduces excluded
  Seconds links{};    ///< how much faster the same programs are when messages and all-reduces take no time
  Seconds bubble{};   ///< the rest: fill, drain, and waiting for other stages
  bool operator==(const StepParts&) const = default;
};

/// Something that works for one step at a time: a stage, or one direction of a worker's port or a node's card.
struct Load {
  std::string name;  ///< `stage 0 (conv1 .. relu3)`, `the link into worker 1`
  Seconds busy{};    ///< per step; of a stage, that of its busiest worker, all-reduce and update included
  bool operator==(const Load&) const = default;
};

/// Three simulations of a synchronous plan, two of a long stream of an asynchronous one. Throws pp::Error
/// (data) when the plan carries no costs.
StepParts step_parts(const Plan& plan);

/// Every stage in order, then the busiest port, if anything is sent.
std::vector<Load> loads_of(const Plan& plan);

}  // namespace pp::plan
