// What a model computes with given weights in one mini-batch on one device: outputs, loss, gradients and
// running statistics, by the code that trains. For comparisons with the module that a model was made from.
#pragma once

#include <filesystem>
#include <functional>

#include "libprofile/core/model/model_graph.h"

namespace pp::run {

struct ValuesRequest {
  /// Safetensors: [n, shape...] for each input and, with a loss, each target, by their names. Without a loss
  /// `output:gradient`, of the shape of the first output, is what `gradients` begin with.
  std::filesystem::path data;
  /// Safetensors: `output:K`, `loss:`, `layer:NAME:K`, `gradient:NAME`, `buffer:NAME`, and `masks:`, the
  /// numbers of elements that were drawn for.
  std::filesystem::path to;
  bool training = false;     ///< batch norm by the micro-batch; dropout keeps everything
  bool layers = false;       ///< also all that layers hand on
  bool gradients = false;    ///< in evaluation by autograd alone
  int micro_batch_size = 0;  ///< samples; 0: all at once
};

/// Throws pp::Error for a request that cannot be done, and OutOfMemory; others can follow.
using Values = std::function<void(const ValuesRequest&)>;

/// `weights`: safetensors with all parameters and buffers; their type is that of the run. `with_loss`: the
/// model's, which it has. Throws pp::Error (data) for a model that cannot be run, and for missing weights.
Values open_values(const ModelGraph& model, const std::filesystem::path& weights, bool with_loss);

}  // namespace pp::run
