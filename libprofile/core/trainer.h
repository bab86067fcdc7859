// What software makes of a device (document pp.trainer): how it sums gradients, which kernels it has, what its
// host and its processes cost. What silicon can do stands in pp.device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp {

/// Attention holds no scores: where the model drops no share of attention, or in any case; `portable_kernel`:
/// by a kernel of FlashAttention's first generation, which runs on every device and is slower.
enum class AttentionKernel { by_model, one_kernel, portable_kernel };
template <>
struct EnumNames<AttentionKernel> {
  static constexpr std::array table{std::pair{AttentionKernel::by_model, "by_model"sv},
                                    std::pair{AttentionKernel::one_kernel, "one_kernel"sv},
                                    std::pair{AttentionKernel::portable_kernel, "portable_kernel"sv}};
};

/// The type that gradients of half weights are added up in, under mixed precision.
enum class GradientType { float32, weights };
template <>
struct EnumNames<GradientType> {
  static constexpr std::array table{std::pair{GradientType::float32, "float32"sv},
                                    std::pair{GradientType::weights, "weights"sv}};
};

/// Root mean square norms and gated activations by one kernel each, or composed of PyTorch's operations, which
/// keep what they make on the way (OpWork::Composed).
enum class ElementKernels { fused, composed };
template <>
struct EnumNames<ElementKernels> {
  static constexpr std::array table{std::pair{ElementKernels::fused, "fused"sv},
                                    std::pair{ElementKernels::composed, "composed"sv}};
};

/// What a trainer can recompute to save memory.
enum class RecomputeExtent {
  any,          ///< each stage what it needs, a whole stage by R (pp-run)
  uniform,      ///< every block within its backward, or none
  first_blocks  ///< uniform, or as many blocks of every stage, its first ones
};
template <>
struct EnumNames<RecomputeExtent> {
  static constexpr std::array table{std::pair{RecomputeExtent::any, "any"sv},
                                    std::pair{RecomputeExtent::uniform, "uniform"sv},
                                    std::pair{RecomputeExtent::first_blocks, "first_blocks"sv}};
};

/// Bytes that kernels move per byte that the op table counts: below 1 where kernels are fused, above 1 where
/// they work in a wider type or in more passes. Of products it is 1.
struct Traffic {
  double elements = 1;   ///< norms, activations, sums, dropout, tables
  double attention = 1;  ///< the passes over scores that attention without one kernel makes
  double loss = 1;
  bool operator==(const Traffic&) const = default;
};

/// How products of a narrow type are made: all of a block with weights, in both directions. An input is cast
/// once for all that read it, a gradient once for both products that read it; weights once an update, which
/// costs next to nothing.
struct Recipe {
  NarrowType products = NarrowType::float8;
  double cast_bytes = 0;     ///< moved for each number that is cast: read in bfloat16, written each way
  double weight_copies = 1;  ///< held besides the weights themselves: each way that they are read in
  bool operator==(const Recipe&) const = default;
};

/// How a mixture of experts is run. Its launches are counted besides.
struct ExpertKernels {
  double efficiency = 1;  ///< of the rate of other products, what those of experts reach
  bool grouped = true;    ///< the experts of a device are one kernel, else one each
  Seconds host{};         ///< that the host takes for a layer's forward, twice in its backward
  double hidden = 0;      ///< share of the exchanges of tokens that other work hides
  double imbalance = 1;   ///< tokens of the device with most of them, relative to the mean
  /// Whether a token travels once to each node that it needs and is handed on there (DeepSeek-AI, DeepSeek-V3
  /// technical report, 2024, sec. 3.2.2), or once for each of its experts.
  bool once_per_node = false;
  bool operator==(const ExpertKernels&) const = default;
};

/// Without figures: free launches, kernels as the op table counts them, sums that hide nothing.
struct TrainerSpec {
  std::string name;
  std::string source;  ///< where the figures come from
  AttentionKernel attention = AttentionKernel::by_model;
  ElementKernels elements = ElementKernels::fused;
  RecomputeExtent recompute = RecomputeExtent::any;
  GradientType gradients = GradientType::float32;
  Seconds launch{};           ///< the host's time for each kernel of a forward; device and host work at once
  Seconds backward_launch{};  ///< the same of a backward
  Seconds update{};           ///< each update of the weights takes it, whatever their size
  Traffic traffic;
  double hidden_gradients = 0;  ///< share of the last backward that hides the sum of gradients
  double hidden_tensor = 0;     ///< share of the exchanges within a tensor group that products hide
  double hidden_context = 0;    ///< the same of the exchanges of keys and values that attention hides
  double contention = 0;        ///< share of the time that shards move in which a device does not compute
  Bytes bucket;                 ///< gradients that are summed by one call; 0: all
  double logit_bytes = 0;       ///< held for each logit besides the float32 probability that the loss keeps
  Bytes process;                ///< buffers and workspaces of a process beside the device's context
  std::vector<Recipe> recipes = {};  ///< each type once
  ExpertKernels experts = {};
  bool operator==(const TrainerSpec&) const = default;
};

/// Throws pp::Error (data): key, value, limit. `pointer`: where it stands in another document.
TrainerSpec trainer_from_json(const Json& json, std::string_view pointer = "");
Json to_json(const TrainerSpec& trainer);
TrainerSpec parse_trainer(std::string_view text);

}  // namespace pp
