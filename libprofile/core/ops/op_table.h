// One row per operation: its attributes with defaults and checks, parameters, buffers, output shapes, FLOPs and
// examples, without Torch. An operation that is a function of LibTorch with the same arguments needs no more;
// others have a forward function in libprofile/model/ops. The table drives reading, checking, tests, the import
// from PyTorch, `pp-profile models --ops` and the documentation; what other code asks of an operation is a
// field of its row, never its name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/core/tensor_type.h"

namespace pp {

struct AttributeSpec {
  std::string_view name;
  Attribute type;                          ///< the alternative that values must have
  std::optional<Attribute> default_value;  ///< none: required, unless `default_from` names another attribute
  std::string_view default_from;  ///< the attribute whose value is the default (stride of a pool: kernel_size)
  double min = 0;                 ///< for numbers, also those of a list, inclusive
  double max = 0;
  std::string_view summary;
  std::vector<std::string_view> choices = {};  ///< of a text
  bool probability = false;                    ///< of random draws; 0: none
  bool silent = false;  ///< written only where it is not the default: documents from before it keep their hash
  bool required() const { return !default_value && default_from.empty(); }
};

/// What one layer of the op has and costs.
struct OpResult {
  std::vector<TensorType> outputs;
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterSpec> buffers;
  Flops forward_flops;  ///< per sample; a multiply-add counts 2
};

/// What happens inside one layer beside its inputs and outputs, per sample.
struct OpInside {
  double kept = 0;            ///< elements that backward needs
  double kept_bytes = 0;      ///< the same of masks and indices
  double kept_on_cpu = 0;     ///< elements more that LibTorch's kernels for CPUs keep
  bool keeps_output = false;  ///< backward needs the output as well: no memory beside what reads it next
  double moved = 0;           ///< elements written and read again on the way
  double flops = 0;           ///< of products that have no weights
  /// Attention by one kernel that holds no scores (Dao et al., FlashAttention, NeurIPS 2022), and the share of
  /// `flops` that it computes: blocks of scores that a causal mask hides are left out.
  bool one_kernel = false;
  double computed = 1;
};

/// What an estimate needs to know of an operation beside shapes and FLOPs (libprofile/estimate).
struct OpWork {
  /// A view moves nothing. `experts`: of a mixture. `unknown`: has no arithmetic.
  enum class Kind { elements, products, view, experts, unknown };
  enum class Keeps { nothing, inputs, output };  ///< what backward needs of them
  Kind kind = Kind::elements;
  Keeps keeps = Keeps::nothing;
  int kernels = 1;                ///< calls of the library that it takes, and about as many backward
  int weight_products = 1;        ///< those of them that multiply by weights
  bool attention = false;         ///< what `inside` says are products of queries, keys and values
  bool passes_gradients = false;  ///< backward only hands on what it gets
  /// Products add the weight's gradient to the mini-batch's as they make it; with `attention` by one kernel.
  bool adds_products = false;
  /// What a trainer without a kernel for it keeps besides (ElementKernels): a norm its input in float32 and
  /// that over its root, in place of the input; a gated activation the activated gate.
  enum class Composed { alike, norm, gate };
  Composed composed = Composed::alike;
  OpInside (*inside)(const Attributes& attributes, std::span<const TensorType> inputs) = nullptr;
};

/// Whether a position of [positions, ...] is computed from the same one of the inputs alone: by all, by those
/// whose attribute `causal` is true from it and, with what a cache keeps of them, earlier ones.
enum class Positions { together, apart, causal };

/// How devices divide an operation when they share every layer by splitting its tensors (Shoeybi et al.,
/// Megatron-LM, 2019, sec. 3). `none`: it is not divided. `elements`: each element by itself, so any part of
/// the tensor does. `positions`: each position needs all of its features. `matrix`: by the weight's rows or
/// columns. `heads`: given queries, keys and values, by heads. `attention`: the same with both projections
/// inside. `table`: by rows of the table. `classes`: of a loss, by the classes of its logits.
enum class TensorSplit { none, elements, positions, matrix, heads, attention, table, classes };

/// Most dimensions of a tensor per sample.
inline constexpr std::size_t kMostDimensions = 16;

/// What an operation takes: the dimensions of its first input per sample, and whether all inputs are floating.
struct OpInput {
  std::size_t least = 0;
  std::size_t most = kMostDimensions;
  std::string_view meaning = {};  ///< of other dimensions, in messages: `two dimensions, [positions, width]`
  bool floating = true;
};

struct OpRow {
  std::string_view name;
  std::string_view summary;
  std::string_view shapes = {};  ///< of inputs and outputs, per sample
  std::string_view flops;        ///< per sample, as a formula
  /// At least one, for readers and tests: types of the inputs per sample, and attributes other than the
  /// default: `int64:7 num_embeddings=5`, `4x6x5 kernel_size=3`.
  std::vector<std::string_view> examples = {};
  /// The function of LibTorch that it is: its tensors are the inputs and the parameters of these names, its
  /// other arguments the attributes of these names; those that are no attribute have their defaults.
  std::string_view aten = {};
  int min_inputs = 1;
  int max_inputs = 1;
  OpInput input = {};
  std::vector<AttributeSpec> attributes = {};
  /// In training normalises over the micro-batch, so that its samples mix. Its buffers are the running mean and
  /// variance, its attribute `momentum` the share of the new values.
  bool batch_statistics = false;
  bool draws = false;  ///< random numbers in training, where its probabilities are above 0
  /// The weight gradient falls out of the input gradient: half a backward would repeat the work.
  bool weight_gradient_with_input = false;
  bool runnable = true;  ///< false: only planned and simulated
  Positions positions = Positions::together;
  TensorSplit tensor = TensorSplit::none;
  /// Integers of this input must be below the result; 0: nothing limits them. Null: of no input.
  std::int64_t (*index_limit)(const Attributes& attributes, std::span<const TensorType> inputs,
                              std::size_t input) = nullptr;
  OpWork work = {};
  /// Shapes, parameters and FLOPs of inputs that `input` allows. `attributes` are complete and in range. Throws
  /// pp::Error (data) with the shape found and the one needed.
  OpResult (*infer)(const Attributes& attributes, std::span<const TensorType> inputs) = nullptr;

  /// The same of any inputs.
  OpResult result(const Attributes& attributes, std::span<const TensorType> inputs) const;
};

/// Sorted by name.
const std::vector<OpRow>& op_table();
const OpRow* find_op(std::string_view name);

/// Losses, sorted by name. Inputs are prediction and target; the result is a scalar, the mean over the samples
/// (and positions) of a micro-batch.
const std::vector<OpRow>& loss_table();
const OpRow* find_loss(std::string_view name);

/// The op of layers that only have edges and sizes (another planner's graph): plannable, never runnable.
inline constexpr std::string_view kOpaqueOp = "opaque";
inline constexpr std::string_view kExpertsOp = "mixture_of_experts";
inline constexpr std::int64_t kMostExperts = 1024;  ///< of one layer: each has parameters of its own

/// Two ops that the table does not have, because a layer says itself what it does: a call of LibTorch, and a
/// small graph of nodes.
inline constexpr std::string_view kAtenOp = "aten";
inline constexpr std::string_view kGraphOp = "graph";
inline constexpr std::size_t kMostNodes = 4096;  ///< of one graph

/// Fills in defaults and turns whole numbers into doubles where the op wants a number. `pointer` is that of the
/// attributes. Throws pp::Error (data): `POINTER/kernel_size: must be an integer from 1 to 1048576, not 0`, and
/// for unknown or missing ones.
Attributes complete_attributes(const OpRow& row, const Attributes& given, std::string_view pointer);

/// One object per operation, sorted by name.
Json operations_json();

/// Both tables, each with a head; `pp-profile models --ops --markdown` prints them.
std::string operations_markdown();

}  // namespace pp
