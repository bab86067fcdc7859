// Training on one device by the book, independent of stages, passes and transports: one autograd graph over the
// whole model for each micro-batch. What every plan must equal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "libplan/plan/plan.h"
#include "librun/run.h"

namespace pp::test {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct Trained {
  std::vector<double> losses;  ///< per step
  int skipped = 0;             ///< steps under a dynamic loss scale
  NamedTensors tensors;        ///< parameters and buffers in model order
};

/// The order in which gradients of micro-batches are added.
enum class Order { ascending, descending };

/// Accumulates over the plan's micro-batches of synthetic data, of as many mini-batches as the options say,
/// then steps; single thread. `rate`: of each step; none: the options' learning rate. `kept`: parameters that
/// no step sees, by name.
Trained train_alone(const pp::plan::Plan& plan, const pp::run::RunOptions& options,
                    Order order = Order::ascending, const std::function<double(std::int64_t)>& rate = {},
                    const std::vector<std::string>& kept = {});

/// One epoch of any valid stream, as its programs and its weight policy (all but latest) state it: a forward
/// uses the version that its worker's updates before it have made, or the older one that the policy says, and
/// an update applies the mean over the samples of all backwards since the one before, on all replicas.
Trained train_stream(const pp::plan::Plan& plan, const pp::run::RunOptions& options);

/// A straight pipeline of two or more stages under the plan's weight policy (stash, vertical_sync,
/// two_buffered, macrobatch, predict), each epoch from equal versions: for every micro-batch the version that
/// the policy gives it (librun/stage/weight_versions.h).
Trained train_versions(const pp::plan::Plan& plan, const pp::run::RunOptions& options);

/// run::run(); throws std::logic_error where the report, or a checkpoint that it has written, is no valid
/// document.
pp::run::RunReport run_checked(
    const pp::plan::Plan& plan, const pp::run::RunOptions& options, pp::run::Observer& observer,
    const std::function<bool()>& interrupted = [] { return false; });

/// Runs the plan and reads the weights it saved.
struct Run {
  pp::run::RunReport report;
  NamedTensors tensors;
};
Run run_plan(const pp::plan::Plan& plan, pp::run::RunOptions options);

/// Runs plans after each other, each up to its step from the checkpoint of the one before. Weights are the last
/// one's, losses those of all steps; throws std::logic_error where a part did not resume.
struct Part {
  pp::plan::Plan plan;
  std::int64_t end;  ///< step
};
Run run_parts(const std::vector<Part>& parts, const pp::run::RunOptions& common);

/// Name of the first tensor that is not bit-equal, with the largest difference; empty: all are.
std::string first_difference(const NamedTensors& expected, const NamedTensors& found);
double largest_difference(const NamedTensors& expected, const NamedTensors& found);

class SilentObserver : public pp::run::Observer {
 public:
  void step(const pp::run::Progress& progress) override { steps.push_back(progress); }
  void epoch(const pp::run::EpochReport& epoch) override { epochs.push_back(epoch); }
  void warning(std::string_view text) override { warnings.emplace_back(text); }
  std::vector<pp::run::Progress> steps;
  std::vector<pp::run::EpochReport> epochs;
  std::vector<std::string> warnings;
};

}  // namespace pp::test
