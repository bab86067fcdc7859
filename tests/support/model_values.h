// What a model computes with weights and data that are given by name, on one device: for comparisons with what
// others compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/ops.h"

namespace pp::test {

struct ModelValues {
  pp::model::Tensors outputs;                   ///< in evaluation
  at::Tensor loss;                              ///< in training, as are the gradients
  std::map<std::string, at::Tensor> gradients;  ///< by model-wide name; of shared parameters the sum
  std::vector<double> steps;                    ///< the losses of further steps of gradient descent
};

/// Parameters and buffers by model-wide name and shape; a batch of an input or target.
struct GivenTensors {
  std::function<at::Tensor(const std::string& name, const pp::Shape& shape)> weights;
  std::function<at::Tensor(const pp::DataTensor& tensor)> data;
  int steps = 0;
  double rate = 0;  ///< of these steps
};

/// Without dropout. `dtype`: of the run.
ModelValues model_values(pp::ModelGraph graph, pp::DType dtype, const GivenTensors& given);

}  // namespace pp::test
