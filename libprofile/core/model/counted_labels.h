// Which labels a loss counts, LibTorch's own calls of losses included. A mean over labels gives each
// micro-batch the weight of its labels, not of its samples: those that are ignored do not count, and classes
// may count differently. Where a loss adds several means, or a mean and something else, each mean of a
// micro-batch has a weight of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/tensor_type.h"

namespace pp {

struct LabelMean {
  int node = -1;                           ///< of the loss's graph; -1: the whole loss is this mean
  std::int64_t ignored = 0;                ///< labels of this value do not count
  std::vector<double> class_weights = {};  ///< what a label of each class counts; empty: 1
  double per_sample = 1;                   ///< labels of a sample, ignored ones included
};

struct CountedLabels {
  std::vector<LabelMean> means = {};  ///< one for the whole loss, or one for each node
  /// How the labels are made of the data: nodes of the loss's graph that compute them, none for a loss of the
  /// table. `made.sources` are inputs and targets of the model, `made.graph_outputs` the labels of each mean.
  std::vector<Layer> nodes = {};
  ResolvedLayer made = {};
};

/// What a loss is told and what is right: `made.graph_outputs` are the prediction and the labels, which nodes
/// of the loss's graph make of tensors of the model, or which the loss of the table reads.
struct Answers {
  std::int64_t ignored = 0;
  int classes = -1;  ///< dimension of the prediction, negative ones counted from the end
  std::vector<Layer> nodes = {};
  ResolvedLayer made = {};
};
/// For the loss cross_entropy, and for a graph with one of LibTorch's cross_entropy_loss or nll_loss on class
/// numbers.
std::optional<Answers> answers_of(const ResolvedModel& model);

/// Labels of the loss cross_entropy, and of a graph whose result is a linear function of means by LibTorch's
/// cross_entropy_loss or nll_loss: a sum of multiples, to which means over samples may be added. Nothing for a
/// loss without such a mean, and where the labels depend on a layer. Throws pp::Error (data) for a graph that
/// ignores one of its classes and is no such function: no weight of a micro-batch makes it equal to the whole
/// batch.
std::optional<CountedLabels> counted_labels(const ResolvedModel& model);

struct LabelCall {
  int prediction = 0;  ///< the input with the classes
  int labels = 0;      ///< the input with the class numbers
  std::int64_t ignored = -100;
  bool mean = true;                            ///< the result is the mean over the labels that count
  std::optional<TensorArgument> weights = {};  ///< of the classes
  /// How many there are, of the call's inputs.
  std::int64_t classes(const std::vector<RowTensor>& inputs) const;
};

/// Nothing for another call, and where prediction or labels are no inputs of it.
std::optional<LabelCall> label_call(const AtenCall& call);

}  // namespace pp
