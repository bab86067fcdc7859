// The row of mixtures of experts (Shazeer et al., Outrageously Large Neural Networks, 2017): a router sends
// every position to a few of many gated perceptrons.
#include <algorithm>
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

/// Per position: scores of all experts through softmax or sigmoid; of each chosen one its perceptron and its
/// share of the sum.
OpResult infer_experts(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t width = inputs[0].shape.back(), experts = integer(attributes, "num_experts"),
                     chosen = integer(attributes, "experts_per_token"), hidden = integer(attributes, "hidden");
  const auto most = [&](const char* name, std::int64_t value, const char* limit, std::int64_t of) {
    if (value <= of) return;
    throw Error(ErrorKind::data, std::string(name) + " " + std::to_string(value) + " must be at most " + limit +
                                     ", " + std::to_string(of));
  };
  const std::int64_t groups = integer(attributes, "groups"), open = integer(attributes, "groups_per_token");
  most("experts_per_token", chosen, "num_experts", experts);
  most("groups_per_token", open, "groups", groups);
  if (experts % groups != 0)
    throw Error(ErrorKind::data,
                "groups " + std::to_string(groups) + " must divide num_experts, " + std::to_string(experts));
  most("experts_per_token", chosen, "the experts of groups_per_token groups", open * (experts / groups));
  const bool bias = boolean(attributes, "bias");
  OpResult result{{inputs[0]}, {{bias ? "router.weight" : "gate.weight", {experts, width}}}, {}, {}};
  if (bias) {
    result.parameters.insert(result.parameters.end(), {{"router.bias", {experts}},
                                                       {"experts.gate_up_proj", {experts, width, 2 * hidden}},
                                                       {"experts.gate_up_proj_bias", {experts, 2 * hidden}},
                                                       {"experts.down_proj", {experts, hidden, width}},
                                                       {"experts.down_proj_bias", {experts, width}}});
  } else {
    const bool numbered = text(attributes, "tensors") == "w1";
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::string expert = "experts." + std::to_string(e) + ".";
      result.parameters.push_back({expert + (numbered ? "w1.weight" : "gate_proj.weight"), {hidden, width}});
      result.parameters.push_back({expert + (numbered ? "w3.weight" : "up_proj.weight"), {hidden, width}});
      result.parameters.push_back({expert + (numbered ? "w2.weight" : "down_proj.weight"), {width, hidden}});
    }
  }
  if (boolean(attributes, "correction"))
    result.buffers = {{"gate.e_score_correction_bias", {experts}, DType::float32}};
  const double router = real(experts) * (2.0 * real(width) + 5);
  const double perceptron = real(hidden) * (6.0 * real(width) + 6) + 2.0 * real(width) +
                            (bias ? 2.0 * real(hidden) + real(width) : 0);
  const double positions = elements(inputs[0]) / real(width);
  result.forward_flops = Flops(positions * (router + real(chosen) * perceptron));
  return result;
}

}  // namespace

std::vector<OpRow> expert_ops() {
  return {
      {.name = kExpertsOp,
       .summary = "gated perceptrons, of which a router chooses some for each position",
       .shapes = "[..., h] -> the same",
       .flops = "2 h + 5 per expert, 6 h hidden + 6 hidden + 2 h per chosen one",
       .examples = {"3x4 num_experts=3 experts_per_token=2 hidden=5",
                    "4 num_experts=7 experts_per_token=1 hidden=2 activation=gelu normalised=false",
                    "4x3 num_experts=6 experts_per_token=3 hidden=4 scores=sigmoid factor=2.5 groups=3 "
                    "groups_per_token=2 correction=true",
                    "4x3 num_experts=6 experts_per_token=2 hidden=2 normalised=false groups=2 tensors=w1",
                    "4x3 num_experts=5 experts_per_token=2 hidden=4 bias=true limit=0.3 alpha=1.7",
                    "2x3 num_experts=3 experts_per_token=2 hidden=2 bias=true"},
       .input = kWidth,
       .attributes =
           {required_integer("num_experts", 1, kMostExperts, "perceptrons"),
            required_integer("experts_per_token", 1, kMaxSize, "experts for each position"),
            required_integer("hidden", 1, kMaxSize / 2, "width inside an expert"),
            choice_attribute<GateActivation>("activation", "of the gate"),
            silent(words_attribute("scores", {"softmax", "sigmoid"}, "of the router, in float32")),
            silent(flag_attribute("normalised", true, "the chosen scores add up to 1")),
            silent(number_attribute("factor", 1, 1e-6, 1e6, "of the sum of the chosen")),
            silent(integer_attribute("groups", 1, 1, kMaxSize, "of neighbouring experts")),
            silent(integer_attribute("groups_per_token", 1, 1, kMaxSize, "in which a position's experts are")),
            silent(flag_attribute("correction", false, "a buffer is added to scores to choose by")),
            silent(words_attribute("tensors", {"gate_proj", "w1"},
                                   "of an expert: gate_proj, up_proj, down_proj; or w1, w3, w2")),
            silent(flag_attribute("bias", false,
                                  "router and experts add a learned vector; one tensor has a matrix of "
                                  "all experts, [in, out], gate and up in turn")),
            silent(number_attribute("limit", 0, 0, 1e6,
                                    "of gates from above, of ups to both sides; then up + 1 is gated; 0: "
                                    "none")),
            silent(number_attribute("alpha", 1, 1e-6, 1e6,
                                    "with a limit a gate is g sigmoid(alpha g), whatever the activation")),
            std_attribute()},
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.kind = OpWork::Kind::experts, .keeps = OpWork::Keeps::inputs, .adds_products = true},
       .infer = infer_experts}};
}

}  // namespace pp::detail
