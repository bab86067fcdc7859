// The tensors that a model trains and keeps, by name, and whether a file has them. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

struct ModelTensor {
  std::string name;  ///< `conv1.weight`; a shared parameter has the name of the layer that owns it
  TensorType type;
  bool trained = true;  ///< false: a buffer, or a frozen parameter
};

/// The slot of a float32 copy that half weights are made of (plan::Precision::mixed).
inline constexpr std::string_view kMaster = "master";
/// `conv1.weight.exp_avg`: the optimizer's `slot` of a parameter.
std::string slot_name(const std::string& parameter, const std::string& slot);

/// Rows [first, end) by the first dimension.
struct RowRange {
  std::int64_t first = 0, end = 0;
};
/// `conv1.weight.exp_avg[16:32]`: of a tensor that several owners have.
std::string rows_name(const std::string& whole, const RowRange& rows);
struct RowsOf {
  std::string whole;
  RowRange rows;
};
/// Nothing where it is the name of a whole tensor.
std::optional<RowsOf> parse_rows_name(std::string_view name);

/// In model order, of each layer its own parameters and then its buffers.
std::vector<ModelTensor> model_tensors(const ResolvedModel& model, DType dtype);

/// Further names of a PyTorch module's state_dict, as import-torch lists them in the metadata of the weights,
/// each with what it is: `same as NAME`, a tensor of the model; `steps`, a counter; `kept`, values that nothing
/// trains, which checkpoints and trained weights carry along. Other metadata are left out.
Metadata further_state(const SafetensorsFile& file);
/// The name behind `same as `; empty: it is something else.
std::string_view same_as(std::string_view what);

/// What the weights of `file` leave open, by name. Throws pp::Error (data) for a tensor of another shape or
/// type (floating ones are converted) and, unless they are to be ignored, for names that neither the model nor
/// further_state() has.
std::vector<std::string> missing_weights(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                                         bool ignore_unknown);

/// Throws pp::Error (data) unless `file` has these slots of every trained tensor, in its shape (a step: a
/// single number), whole or all of its rows, or none of them at all. Returns whether it has them.
bool has_optimizer_state(const SafetensorsFile& file, std::span<const ModelTensor> wanted,
                         std::span<const std::string> slots);

}  // namespace pp::run
