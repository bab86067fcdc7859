// The tensors that a model trains and keeps, by name, and whether a file has them. Free of Torch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

struct ModelTensor {
  std::string name;  ///< `conv1.weight`; a shared parameter has the name of the layer that owns it
  TensorType type;
  bool trained = true;  ///< false: a buffer, or a frozen parameter
};

/// `conv1.weight.exp_avg`: the optimizer's `slot` of a parameter.
std::string slot_name(const std::string& parameter, const std::string& slot);

/// In model order, of each layer its own parameters and then its buffers.
std::vector<ModelTensor> model_tensors(const ResolvedModel& model, DType dtype);

/// What the weights of `file` leave open, by name. Throws pp::Error (data) for a tensor of another shape or
/// type (floating ones are converted) and, unless they are to be ignored, for names that the model does not
/// have.
std::vector<std::string> missing_weights(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                                         bool ignore_unknown);

/// Throws pp::Error (data) unless `file` has these slots of every trained tensor, in its shape (a step: a
/// single number), or none of them at all. Returns whether it has them.
bool has_optimizer_state(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                         std::span<const std::string> slots);

}  // namespace pp::run
