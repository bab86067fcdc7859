#include "tests/librun/reference.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/segment.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/whole_model.h"
#include "tests/support/schema.h"

namespace pp::test {

using namespace pp;

namespace {

// Of the layers that own their weights; the others' come to their owners first, in ascending layer order.
std::vector<at::Tensor> gathered(const ResolvedModel& model, LayerTensors sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto owner = static_cast<std::size_t>(model.layers[i].weights_layer);
    if (sums[i].empty() || owner == i) continue;
    for (std::size_t p = 0; p < sums[i].size(); ++p) sums[owner][p].add_(sums[i][p]);
    sums[i].clear();
  }
  return flat(sums);
}

std::vector<at::Tensor> owned(const ResolvedModel& model, LayerTensors weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (model.layers[i].weights_layer != static_cast<int>(i)) weights[i].clear();
  }
  return flat(weights);
}

// Of such a list what is not kept.
std::vector<at::Tensor> moving(const ResolvedModel& model, std::vector<at::Tensor> all,
                               const std::vector<std::string>& kept) {
  std::vector<at::Tensor> left;
  auto next = all.begin();
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; resolved.weights_layer == layer && i < resolved.parameters.size(); ++i, ++next) {
      if (std::ranges::count(kept, parameter_name(model, layer, i)) == 0) left.push_back(*next);
    }
  }
  return left;
}

// Parameters that no micro-batch had a gradient for, as where the loss does not read their layer: torch.optim
// leaves them alone, their decay too.
std::vector<std::string> without_gradient(const ResolvedModel& model, const model::Gradients& sums) {
  std::map<std::string, bool> reached;
  for (std::size_t l = 0; l < sums.layers.size(); ++l) {
    for (std::size_t i = 0; i < sums.layers[l].size(); ++i)
      reached[parameter_name(model, model.layers[l].weights_layer, i)] |= sums.layers[l][i].defined();
  }
  std::vector<std::string> names;
  for (const auto& [name, any] : reached) {
    if (!any) names.push_back(name);
  }
  return names;
}

bool all_finite(const std::vector<at::Tensor>& gradients) {
  return std::ranges::all_of(gradients, [](const at::Tensor& g) { return g.isfinite().all().item<bool>(); });
}

// Of 256 elements at a time, as they lie in memory, eight sums side by side: the order of a run's norm
// (librun/stage/README.md), written as a plain loop.
double square_norm(const at::Tensor& gradient) {
  const at::Tensor values =
      gradient.as_strided({gradient.numel()}, {1}, gradient.storage_offset()).to(at::kDouble);
  const auto* const value = values.const_data_ptr<double>();
  double all = 0;
  for (std::int64_t begin = 0; begin < values.numel(); begin += 256) {
    double lanes[8] = {};
    for (std::int64_t i = begin; i < std::min(begin + 256, values.numel()); ++i)
      lanes[(i - begin) % 8] += value[i] * value[i];
    double block = 0;
    for (const double lane : lanes) block += lane;
    all += block;
  }
  return all;
}

// As torch.nn.utils.clip_grad_norm_ does, the norm in double precision.
void clip(const std::vector<at::Tensor>& gradients, double most) {
  double squares = 0;
  for (const at::Tensor& gradient : gradients) squares += square_norm(gradient);
  const double factor = most / (std::sqrt(squares) + 1e-6);
  for (const at::Tensor& gradient : gradients) {
    if (factor < 1) gradient.mul_(factor);
  }
}

}  // namespace

Trained train_alone(const plan::Plan& plan, const run::RunOptions& options, Order order_of_sum,
                    const std::function<double(std::int64_t)>& rate, const std::vector<std::string>& kept) {
  at::set_num_threads(1);
  WholeModel model(plan, options);
  Trained result;
  LayerTensors weights = model.initial_weights(), buffers = model.initial_buffers();
  const auto optimizer = optimizer_of(plan, options);
  const run::EpochShape shape = shape_of(plan, options, model.samples());  // of mini-batches
  const std::int64_t group = options.accumulate, per_epoch = (shape.count + group - 1) / group;
  const std::int64_t total = options.steps.value_or(per_epoch * options.epochs.value_or(1));
  const bool dynamic = options.autocast == Autocast::float16 && !options.loss_scale;
  double scale = dynamic ? 65536 : options.loss_scale.value_or(1);
  int finite_steps = 0;
  for (std::int64_t step = 0; step < total; ++step) {
    const auto order =
        run::epoch_order(model.samples(), options.seed, static_cast<int>(step / per_epoch), options.shuffle);
    const std::int64_t begin = step % per_epoch * group, end = std::min(begin + group, shape.count);
    int size = 0;
    for (std::int64_t batch = begin; batch < end; ++batch) size += shape.size(batch);
    std::map<std::pair<int, int>, std::vector<model::BatchStatistics>> statistics;  // by layer and buffer
    double loss = 0;
    const int micro_batches = plan.training.micro_batches;
    std::vector<int> in_order(static_cast<std::size_t>(micro_batches * (end - begin)));
    std::iota(in_order.begin(), in_order.end(), 0);
    // Within a mini-batch: those that an update accumulates come one after the other.
    for (auto first = in_order.begin(); order_of_sum == Order::descending && first != in_order.end();
         first += micro_batches)
      std::reverse(first, first + micro_batches);
    std::vector<Gradient> parts(in_order.size());
    model::Gradients sums = model.no_gradients();
    for (const int m : in_order) {
      const std::int64_t batch = begin + m / micro_batches;
      const auto offsets = offsets_of(shape.size(batch), micro_batches);
      const auto piece = static_cast<std::size_t>(m % micro_batches);
      const auto first = static_cast<std::size_t>(shape.first(batch) + offsets[piece]);
      const auto count = static_cast<std::size_t>(offsets[piece + 1] - offsets[piece]);
      Gradient& part = parts[static_cast<std::size_t>(m)];
      part = model.add_gradient(sums, weights, std::span(order).subspan(first, count),
                                scale * static_cast<double>(count) / size, {options.seed, step, m});
      part.loss = part.loss * static_cast<double>(count) / size;
    }
    for (const Gradient& part : parts) {
      for (const auto& entry : part.statistics) statistics[{entry.layer, entry.buffer}].push_back(entry);
      loss += part.loss;
    }
    std::vector<std::string> still = without_gradient(model.resolved(), sums);
    still.insert(still.end(), kept.begin(), kept.end());
    const std::vector<at::Tensor> gradients =
        moving(model.resolved(), gathered(model.resolved(), summed(sums, weights)), still);
    result.losses.push_back(loss);
    for (const at::Tensor& gradient : gradients) gradient.mul_(1 / scale);
    if (dynamic) {  // as torch.amp.GradScaler
      const bool finite = all_finite(gradients);
      finite_steps = finite ? finite_steps + 1 : 0;
      if (!finite) scale /= 2;
      if (finite_steps == 2000) scale *= 2, finite_steps = 0;
      result.skipped += finite ? 0 : 1;
      if (!finite) continue;
    }
    if (options.clip_norm) clip(gradients, *options.clip_norm);
    optimizer->step(moving(model.resolved(), owned(model.resolved(), weights), still), gradients,
                    rate ? rate(step) : options.learning_rate);
    for (auto& [place, entries] : statistics) {
      for (const BatchNorm& norm : batch_norms(model.resolved(), place.first)) {
        if (norm.buffer != place.second) continue;
        std::vector<at::Tensor>& all = buffers[static_cast<std::size_t>(place.first)];
        const model::NormStatistics of{entries, norm,
                                       std::span(all).subspan(static_cast<std::size_t>(norm.buffer), 2)};
        model::commit_statistics(std::span(&of, 1));
      }
    }
  }
  result.tensors = model.named(weights, buffers);
  return result;
}

run::RunReport run_checked(const plan::Plan& plan, const run::RunOptions& options, run::Observer& observer,
                           const std::function<bool()>& interrupted) {
  std::optional<DocumentsOf> checkpoints;
  if (!options.checkpoint.empty()) checkpoints.emplace(options.checkpoint);
  run::RunReport report = run::run(plan, options, observer, interrupted);
  std::string wrong = schema_error("report", run::to_json(report));
  if (checkpoints) wrong += checkpoints->invalid();
  if (!wrong.empty()) throw std::logic_error(wrong);
  return report;
}

Run run_plan(const plan::Plan& plan, run::RunOptions options) {
  const TestFolder folder;
  options.save_weights = folder.path() / "weights.safetensors";
  SilentObserver observer;
  Run result;
  result.report = run_checked(plan, options, observer);
  result.tensors = run::read_weights(options.save_weights);
  return result;
}

Run run_parts(const std::vector<Part>& parts, const run::RunOptions& common) {
  const TestFolder folder;
  Run all;
  std::vector<double> losses;
  std::int64_t skipped = 0;
  for (const Part& part : parts) {
    run::RunOptions options = common;
    options.steps = part.end;
    options.checkpoint = folder.path() / "ck";
    if (!losses.empty()) options.resume = options.checkpoint;
    all = run_plan(part.plan, options);
    if (all.report.resumed.has_value() == losses.empty()) throw std::logic_error("not resumed");
    losses.insert(losses.end(), all.report.step_losses.begin(), all.report.step_losses.end());
    skipped += all.report.skipped_steps;
  }
  all.report.step_losses = losses;
  all.report.skipped_steps = skipped;
  return all;
}

std::string first_difference(const NamedTensors& expected, const NamedTensors& found) {
  if (expected.size() != found.size())
    return std::to_string(found.size()) + " tensors instead of " + std::to_string(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].first != found[i].first) return found[i].first + " instead of " + expected[i].first;
    if (expected[i].second.equal(found[i].second)) continue;
    return expected[i].first + " differs by " +
           std::to_string(expected[i].second.sub(found[i].second).abs().max().item<double>());
  }
  return "";
}

double largest_difference(const NamedTensors& expected, const NamedTensors& found) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, expected[i].second.sub(found[i].second).abs().max().item<double>());
  }
  return largest;
}

}  // namespace pp::test
