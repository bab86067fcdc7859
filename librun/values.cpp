// A mini-batch of a whole model on one device, with values that are asked for by name.
#include "librun/values.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/device/process.h"
#include "libprofile/model/comparison.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/label_count.h"
#include "libprofile/model/segment.h"
#include "librun/checkpoint/weights.h"

namespace pp::run {

namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

std::vector<int> all_layers(const ResolvedModel& model) {
  std::vector<int> all(model.layers.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

using TensorsByName = std::map<std::string, at::Tensor, std::less<>>;

const at::Tensor& named(const TensorsByName& tensors, const std::string& name, const std::string& file) {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
  throw Error(ErrorKind::data, file + ": no tensor \"" + name + "\"; all that the model reads must be in it");
}

TensorsByName read(const std::filesystem::path& file) {
  NamedTensors tensors = read_weights(file);
  return {std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())};
}

/// The run's: that of the first parameter.
at::ScalarType run_type(const ResolvedModel& model, const TensorsByName& weights) {
  for (int l = 0; l < model.layer_count(); ++l) {
    if (model.layers[index(l)].parameters.empty()) continue;
    const auto found = weights.find(parameter_name(model, model.layers[index(l)].weights_layer, 0));
    if (found != weights.end() && found->second.is_floating_point()) return found->second.scalar_type();
  }
  return at::kFloat;
}

/// Parts of a tensor, by micro-batch.
using Parts = std::map<std::string, std::vector<at::Tensor>>;

/// Keeps what layers hand on.
class Watching final : public model::LayerObserver {
 public:
  Watching(const ResolvedModel& model, Parts& parts) : model_(model), parts_(parts) {}
  void begin(int /*position*/, Phase /*phase*/) override {}
  void made(int position, model::TensorSpan outputs) override {
    if (position == model_.layer_count()) return;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      parts_["layer:" + model_.graph.layers[index(position)].name + ":" + std::to_string(k)].push_back(
          outputs[k]);
  }
  void end(int /*position*/, Phase /*phase*/) override {}

 private:
  const ResolvedModel& model_;
  Parts& parts_;
};

class WholeModel {
 public:
  WholeModel(const ModelGraph& graph, const std::filesystem::path& file, bool with_loss)
      : model_(resolve(graph)), segment_(model_, all_layers(model_), with_loss) {
    const TensorsByName given = read(file);
    type_ = run_type(model_, given);
    std::map<std::string, at::Tensor> leaves;
    for (int l = 0; l < model_.layer_count(); ++l) {
      const ResolvedLayer& layer = model_.layers[index(l)];
      weights_->layers.emplace_back();
      for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
        const std::string name = parameter_name(model_, layer.weights_layer, i);
        at::Tensor& leaf = leaves[name];
        if (!leaf.defined()) leaf = named(given, name, file).to(type_).detach();
        if (model_.layers[index(layer.weights_layer)].trained[i]) leaf.requires_grad_();
        weights_->layers.back().push_back(leaf);
      }
      buffers_.emplace_back();
      for (std::size_t i = 0; i < layer.buffers.size(); ++i) {
        const at::Tensor& buffer = named(given, buffer_name(model_, l, i), file);
        buffers_.back().push_back(buffer.is_floating_point() ? buffer.to(type_) : buffer);
      }
    }
    if (!with_loss) return;
    if (std::optional<CountedLabels> counted = counted_labels(model_)) labels_.emplace(*std::move(counted));
  }

  void answer(const ValuesRequest& request) const {
    Step step(*this, request);
    for (std::int64_t first = 0; first < step.samples; first += step.size)
      step.micro_batch(first, std::min(step.size, step.samples - first));
    step.write();
  }

 private:
  /// One mini-batch.
  struct Step {
    Step(const WholeModel& whole, const ValuesRequest& wanted)
        : of(whole), request(wanted), data(read(wanted.data)), gradients(whole.segment_.empty_gradients()) {
      samples = column(model().graph.inputs.front()).size(0);
      size = request.micro_batch_size > 0 ? request.micro_batch_size : samples;
      for (const auto& buffers : whole.buffers_) {
        after.emplace_back();
        for (const at::Tensor& buffer : buffers) after.back().push_back(buffer.clone());
      }
      if (of.labels_) all = (*of.labels_)(rows(of.labels_->sources(), 0, samples));
    }

    const ResolvedModel& model() const { return of.model_; }
    const at::Tensor& column(const DataTensor& tensor) const {
      return named(data, tensor.name, request.data.string());
    }
    model::Tensors rows(const std::vector<TensorSource>& sources, std::int64_t first,
                        std::int64_t count) const {
      model::Tensors cut;
      for (const TensorSource& source : sources) {
        const bool input = source.kind == TensorSource::Kind::input;
        const at::Tensor& whole =
            column((input ? model().graph.inputs : model().graph.targets)[index(source.index)]);
        const at::Tensor part = whole.narrow(0, first, count);
        cut.push_back(part.is_floating_point() ? part.to(of.type_) : part);
      }
      return cut;
    }

    void micro_batch(std::int64_t first, std::int64_t count) {
      double weight = static_cast<double>(count) / static_cast<double>(samples);
      model::PassContext context{.mode = request.training ? model::Mode::training : model::Mode::evaluation,
                                 .record = request.gradients ? model::Record::graph : model::Record::none,
                                 .key = {.micro_batch = first / size},
                                 .buffers = of.buffers_,
                                 .dtype = of.type_};
      if (of.labels_) weight = weigh(first, count, weight, context.label_shares);
      Watching watching(model(), parts);
      model::Pass pass = of.segment_.forward(of.weights_, rows(of.segment_.inputs(), first, count), context,
                                             request.layers ? &watching : nullptr);
      for (std::size_t k = 0; k < model().outputs.size(); ++k)
        parts["output:" + std::to_string(k)].push_back(pass.outputs[place(model().outputs[k])]);
      for (model::BatchStatistics& seen : pass.statistics) statistics.push_back(std::move(seen));
      if (of.segment_.has_loss() && weight > 0) loss += pass.loss.item<double>() * weight;
      if (request.gradients) backward(pass, weight, first, count);
    }

    /// The micro-batch's share of the loss, where labels count differently.
    double weigh(std::int64_t first, std::int64_t count, double rows_share, std::vector<double>& shares) const {
      const std::vector<double> own = (*of.labels_)(rows(of.labels_->sources(), first, count));
      if (!of.labels_->apart()) return own.front() / all.front();
      shares.assign(model().graph.loss->nodes.size(), 1.0);
      for (std::size_t i = 0; i < own.size(); ++i)
        shares[index(of.labels_->means()[i].node)] = own[i] / all[i] / rows_share;
      return rows_share;
    }

    void backward(model::Pass& pass, double weight, std::int64_t first, std::int64_t count) {
      std::vector<model::Tensors> arrived(of.segment_.outputs().size());
      if (!of.segment_.has_loss()) {
        const at::Tensor& given = named(data, "output:gradient", request.data.string());
        arrived[place(model().outputs.front())].push_back(given.narrow(0, first, count).to(of.type_));
      }
      of.segment_.backward(pass, arrived, weight, gradients);
    }

    std::size_t place(const TensorSource& output) const {
      const std::vector<TensorSource>& leaving = of.segment_.outputs();
      return index(static_cast<int>(std::ranges::find(leaving, output) - leaving.begin()));
    }

    void commit() {
      for (int l = 0; l < model().layer_count(); ++l) {
        for (const BatchNorm& norm : batch_norms(model(), l)) {
          std::vector<model::BatchStatistics> mine;
          for (const model::BatchStatistics& seen : statistics) {
            if (seen.layer == l && seen.buffer == norm.buffer) mine.push_back(seen);
          }
          const std::span<at::Tensor> buffers = std::span(after[index(l)]).subspan(index(norm.buffer), 2);
          const model::NormStatistics of_norm{mine, norm, buffers};
          model::commit_statistics(std::span(&of_norm, 1));
        }
      }
    }

    void write() {
      commit();
      std::map<std::string, at::Tensor> found;
      for (const auto& [name, tensors] : parts)
        found[name] = (tensors.size() == 1 ? tensors.front() : at::cat(tensors)).contiguous();
      if (of.segment_.has_loss()) found["loss:"] = at::scalar_tensor(loss, at::kDouble);
      found["masks:"] = at::tensor(comparison.masks(), at::kLong);
      for (int l = 0; l < model().layer_count(); ++l) {
        for (std::size_t i = 0; i < gradients.layers[index(l)].size(); ++i) {
          const at::Tensor& use = gradients.layers[index(l)][i];
          if (!use.defined()) continue;
          at::Tensor& sum =
              found["gradient:" + parameter_name(model(), model().layers[index(l)].weights_layer, i)];
          sum = (sum.defined() ? sum.add(use) : use).contiguous();
        }
        for (std::size_t i = 0; i < after[index(l)].size(); ++i)
          found["buffer:" + buffer_name(model(), l, i)] = after[index(l)][i].contiguous();
      }
      AtomicFile file(request.to);
      write_safetensors(stored({found.begin(), found.end()}),
                        [&](std::string_view bytes) { file.write(bytes); });
      file.commit();
    }

    const WholeModel& of;
    const ValuesRequest& request;
    TensorsByName data;
    std::int64_t samples = 0, size = 0;
    std::vector<double> all;  ///< labels that count, for each mean
    std::vector<std::vector<at::Tensor>> after;
    model::Gradients gradients;
    std::vector<model::BatchStatistics> statistics;
    model::Comparison comparison;
    Parts parts;
    double loss = 0;
  };

  ResolvedModel model_;
  model::Segment segment_;
  std::shared_ptr<model::Weights> weights_ = std::make_shared<model::Weights>();
  std::vector<std::vector<at::Tensor>> buffers_;
  std::optional<model::LabelCount> labels_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace

Values open_values(const ModelGraph& model, const std::filesystem::path& weights, bool with_loss) {
  profile::enter_worker_thread(at::get_num_threads());
  const auto whole = std::make_shared<const WholeModel>(model, weights, with_loss);
  return [whole](const ValuesRequest& request) {
    try {
      whole->answer(request);
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  };
}

}  // namespace pp::run
