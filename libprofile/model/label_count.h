// What micro-batches weigh in a loss that is a mean over labels.
#pragma once

#include "libprofile/core/model/counted_labels.h"
#include "libprofile/model/ops.h"

namespace pp::model {

/// How many of a loss's labels its prediction has right.
class RightAnswers {
 public:
  explicit RightAnswers(Answers answers);

  struct Count {
    std::int64_t right = 0, all = 0;
  };
  /// `data`: as for LabelCount; the labels that count.
  Count operator()(TensorSpan data) const;

  /// Tensors of the model that prediction and labels are made of.
  const std::vector<TensorSource>& sources() const { return answers_.made.sources; }

 private:
  Answers answers_;
  BoundLayer told_;
};

class LabelCount {
 public:
  explicit LabelCount(CountedLabels counted);

  /// In one micro-batch, for each mean: the labels that count, or the sum of their class weights, over the
  /// labels that a sample has. So it is the number of samples where every label counts as 1, and exact where no
  /// class has a weight. `data`: a tensor [n, shape...] for each of sources(), on one device; waits for it.
  std::vector<double> operator()(TensorSpan data) const;

  /// Each mean has a weight of its own (PassContext::label_shares); else there is one, for the whole loss.
  bool apart() const { return counted_.means.front().node >= 0; }
  const std::vector<LabelMean>& means() const { return counted_.means; }

  /// Inputs and targets of the model that the labels are made of.
  const std::vector<TensorSource>& sources() const { return counted_.made.sources; }

 private:
  CountedLabels counted_;
  BoundLayer labels_;
  std::vector<at::Tensor> class_weights_;  ///< of each mean: float64, on the CPU; undefined: all are 1
};

}  // namespace pp::model
