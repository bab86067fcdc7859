#include "libplan/interop/block_row.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "libplan/plan/programs.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/text.h"

namespace pp::plan::detail {
namespace {

/// What makes two blocks equal: their operations and parameters.
using Signature = std::vector<std::pair<std::string, std::vector<Shape>>>;

Signature signature_of(const ResolvedModel& model, std::size_t begin, std::size_t end) {
  Signature signature;
  for (std::size_t i = begin; i < end; ++i) {
    auto& [op, shapes] = signature.emplace_back(model.graph.layers[i].op, std::vector<Shape>());
    for (const ParameterSpec& parameter : model.layers[i].parameters) shapes.push_back(parameter.shape);
  }
  return signature;
}

bool has_experts(const Signature& signature) {
  return std::ranges::any_of(signature, [](const auto& layer) {
    const OpRow* row = find_op(layer.first);
    return row != nullptr && row->work.kind == OpWork::Kind::experts;
  });
}

/// `h.` and 3 of `h.3` in `h.3.attention.qkv`: every part of the path that ends in a number.
std::vector<std::pair<std::string, int>> numbered_parts(const std::string& module) {
  constexpr std::size_t kMostDigits = 6;
  std::vector<std::pair<std::string, int>> parts;
  for (std::size_t dot = 0; dot != module.npos;) {
    dot = module.find('.', dot + 1);
    const std::string part = module.substr(0, dot);
    const std::size_t digits = part.find_last_not_of("0123456789") + 1;
    if (digits < part.size() && part.size() - digits <= kMostDigits)
      parts.emplace_back(part.substr(0, digits), std::stoi(part.substr(digits)));
  }
  return parts;
}

/// The row that the layers of one prefix make, without a gap; no blocks when they are none, or not equal.
BlockRow row_of(const ResolvedModel& model, const std::map<std::size_t, int>& numbers) {
  BlockRow row;
  std::size_t next = numbers.begin()->first;
  for (const auto& [layer, n] : numbers) {
    if (layer != next) return {};
    const int count = static_cast<int>(row.begins.size());
    if (n == count) {
      row.begins.push_back(layer);
    } else if (n != count - 1) {
      return {};
    }
    ++next;
  }
  row.end = next;
  std::map<bool, Signature> kinds;
  for (std::size_t b = 0; b < row.begins.size(); ++b) {
    const Signature own = signature_of(model, row.begins[b], row.end_of(b));
    row.mixtures.push_back(has_experts(own));
    if (kinds.emplace(row.mixtures.back(), own).first->second != own) return {};
  }
  return row;
}

std::int64_t last_size(const TensorType& tensor) { return tensor.shape.empty() ? 0 : tensor.shape.back(); }

bool is_product(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  return row != nullptr && row->work.kind == OpWork::Kind::products;
}

std::int64_t number_of(const Layer& layer, std::string_view attribute) {
  const auto found = layer.attributes.find(attribute);
  const auto* value = found == layer.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value == nullptr ? 0 : *value;
}

bool has_heads(const Layer& layer) { return number_of(layer, "num_heads") > 0; }

/// Of each block which of its layers run again.
std::vector<std::set<std::size_t>> repeated_layers(const Plan& plan, const BlockRow& row) {
  const std::vector<int> stage_of = stage_of_layers(plan);
  std::vector<std::set<std::size_t>> repeated(row.begins.size());
  for (std::size_t b = 0; b < row.begins.size(); ++b) {
    for (std::size_t l = row.begins[b]; l < row.end_of(b); ++l) {
      const std::vector<std::string>& list = plan.stages[at(stage_of[l])].recompute;
      const bool whole = plan.schedule.recompute == RecomputePolicy::always;
      if (whole || std::ranges::find(list, plan.model.layers[l].name) != list.end())
        repeated[b].insert(l - row.begins[b]);
    }
  }
  return repeated;
}

/// Of a block, those between its products that split heads.
std::set<std::size_t> attention_layers(const Plan& plan, const BlockRow& row) {
  std::set<std::size_t> layers;
  for (std::size_t l = row.begins[0]; l < row.end_of(0); ++l)
    if (has_heads(plan.model.layers[l])) layers.insert(l - row.begins[0]);
  return layers;
}

/// The first n of each stage are whole, of stages with fewer all; -1: it is not so.
int first_whole(const std::vector<bool>& whole, const std::vector<int>& blocks_of_stage) {
  int most = 0;
  std::vector<int> counts;
  std::size_t begin = 0;
  for (const int blocks : blocks_of_stage) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin), end = first + blocks;
    counts.push_back(static_cast<int>(std::find(first, end, false) - first));
    if (std::find(first + counts.back(), end, true) != end) return -1;
    most = std::max(most, counts.back());
    begin += at(blocks);
  }
  for (std::size_t s = 0; s < counts.size(); ++s)
    if (counts[s] != std::min(most, blocks_of_stage[s])) return -1;
  return most;
}

}  // namespace

BlockRow block_row_of(const ResolvedModel& model, const std::string& trainer) {
  std::map<std::string, std::map<std::size_t, int>> numbers;  // per prefix: layer -> its number
  const std::vector<Block> predictions = prediction_blocks(model.graph);
  const std::size_t end = predictions.empty() ? model.layers.size() : at(predictions.front().begin);
  for (std::size_t i = 0; i < end; ++i) {
    for (const auto& [prefix, n] : numbered_parts(module_of(model.graph.layers[i]))) numbers[prefix][i] = n;
  }
  BlockRow best;
  bool one = false;
  for (const auto& [prefix, of_layers] : numbers) {
    BlockRow row = row_of(model, of_layers);
    one |= row.begins.size() == 1;
    if (row.begins.size() < 2) continue;
    if (best.begins.empty() || row.end - row.begins[0] > best.end - best.begins[0]) best = std::move(row);
  }
  if (best.begins.empty()) {
    refuse_plan(trainer,
                "it takes a row of two or more equal blocks (names such as h.0.attention, "
                "h.1.attention, ...), and " +
                    model.graph.name + (one ? " has one" : " has no such layers"));
  }
  best.predictions = predictions;
  return best;
}

std::vector<int> blocks_of_stages(const Plan& plan, const BlockRow& row, const std::string& trainer) {
  const std::vector<int> stage_of = stage_of_layers(plan);
  const int last = static_cast<int>(plan.stages.size()) - 1;
  const auto name = [&](std::size_t layer) { return plan.model.layers[layer].name; };
  for (std::size_t i = 0; i < row.begins[0]; ++i) {
    if (stage_of[i] != 0)
      refuse_plan(
          trainer,
          name(i) + " stands before the blocks and belongs into the first stage; plan with --cut-at block");
  }
  for (std::size_t i = row.behind(); i < stage_of.size(); ++i) {
    if (stage_of[i] != last)
      refuse_plan(
          trainer,
          name(i) + " stands behind the blocks and belongs into the last stage; plan with --cut-at block");
  }
  std::vector<int> count(plan.stages.size());
  for (std::size_t b = 0; b < row.begins.size(); ++b) {
    for (std::size_t i = row.begins[b]; i < row.end_of(b); ++i) {
      if (stage_of[i] == stage_of[row.begins[b]]) continue;
      refuse_plan(trainer, "stage " + std::to_string(stage_of[i]) + " begins with " + name(i) +
                               ", inside a block; plan with --cut-at block");
    }
    ++count[at(stage_of[row.begins[b]])];
  }
  return count;
}

int stage_of_predictions(const Plan& plan, const BlockRow& row, const std::string& trainer) {
  if (row.predictions.empty()) return -1;
  const std::vector<int> stage_of = stage_of_layers(plan);
  const int stage = stage_of[row.behind() - 1];
  for (std::size_t i = row.end; i < row.behind(); ++i) {
    const bool in_front = i < at(row.predictions.front().begin) && stage_of[i] == stage_of[row.end - 1];
    if (stage_of[i] == stage || in_front) continue;
    refuse_plan(trainer, "multi-token prediction begins in stage " + std::to_string(stage_of[i]) + " with " +
                             plan.model.layers[i].name + " and ends in stage " + std::to_string(stage) +
                             "; plan with --cuts that leave it in one");
  }
  return stage;
}

void leave_out_others(const ResolvedModel& model, const BlockRow& row, LossList& lost) {
  std::vector<std::string> others;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const bool outside = l < row.begins[0] || l >= row.behind(), head = l + 1 == model.layers.size();
    if (outside && !head && is_product(model.graph.layers[l])) others.push_back(model.graph.layers[l].name);
  }
  if (others.empty()) return;
  lost.add(counted(std::ssize(others), "product") + " beside those of its blocks and its head, " +
           others.front() + (others.size() > 1 ? " to " + others.back() : "") +
           ": the plan counts them, and it has none");
}

LanguageSizes language_sizes(const ResolvedModel& model, const BlockRow& row) {
  LanguageSizes sizes;
  const ResolvedLayer& first = model.layers[row.begins[0]];
  sizes.width = last_size(first.inputs.front());
  const Shape& shape = first.inputs.front().shape;
  sizes.sequence = shape.size() == 2 ? shape.front() : 0;
  sizes.vocabulary = last_size(model.layers.back().outputs.front());
  const std::size_t plain = row.has(false) ? row.first(false) : 0;
  for (std::size_t l = row.begins[plain]; l < row.end_of(plain); ++l) {
    const Layer& layer = model.graph.layers[l];
    if (is_product(layer) && !has_heads(layer)) sizes.feed_forward = last_size(model.layers[l].inputs.front());
    if (!has_heads(layer)) continue;
    sizes.heads = number_of(layer, "num_heads");
    sizes.key_value_heads = number_of(layer, "num_key_value_heads");
  }
  for (std::size_t l = row.begins[0]; l < row.end; ++l)
    sizes.expert_hidden = std::max(sizes.expert_hidden, number_of(model.graph.layers[l], "hidden"));
  if (!row.has(false)) sizes.feed_forward = sizes.expert_hidden;
  for (std::size_t l = row.behind(); l < model.layers.size(); ++l)
    sizes.tied |= model.layers[l].weights_layer >= 0 && at(model.layers[l].weights_layer) < row.begins[0];
  return sizes;
}

BlockRecompute block_recompute(const Plan& plan, const BlockRow& row) {
  using Kind = BlockRecompute::Kind;
  if (is_checkpointed(plan)) return {Kind::full};
  if (is_checkpointed(plan, "attention")) return {Kind::attention};
  if (const int first = first_checkpointed(plan); first > 0) return {Kind::first, first};
  const auto whole_stages = whole_recomputes(plan);
  const bool by_stage = std::ranges::any_of(whole_stages, [](const auto& op) { return op.has_value(); });
  if (by_stage && plan.schedule.recompute != RecomputePolicy::always) return {Kind::other};
  const auto repeated = repeated_layers(plan, row);
  std::vector<bool> whole;
  for (std::size_t b = 0; b < repeated.size(); ++b)
    whole.push_back(repeated[b].size() == row.end_of(b) - row.begins[b]);
  // Those that are whole without predictions are the first ones of every stage.
  if (row.predictions.empty() && std::ranges::all_of(whole, std::identity())) return {Kind::full};
  const auto same = [&](const std::set<std::size_t>& layers) {
    return std::ranges::all_of(repeated, [&](const auto& block) { return block == layers; });
  };
  const std::vector<int> stage_of = stage_of_layers(plan);
  const auto in_row = [&](const std::string& name) {
    for (std::size_t l = row.begins[0]; l < row.end; ++l)
      if (plan.model.layers[l].name == name) return true;
    return false;
  };
  for (const Stage& stage : plan.stages)  // a norm before the head, say
    if (!std::ranges::all_of(stage.recompute, in_row)) return {Kind::other};
  if (same({})) return {Kind::none};
  if (same(attention_layers(plan, row))) return {Kind::attention};
  std::vector<int> blocks(plan.stages.size());
  for (const std::size_t begin : row.begins) ++blocks[at(stage_of[begin])];
  for (std::size_t b = 0; b < repeated.size(); ++b)
    if (!whole[b] && !repeated[b].empty()) return {Kind::other};
  const int first = first_whole(whole, blocks);
  return first < 0 ? BlockRecompute{Kind::other} : BlockRecompute{Kind::first, first};
}

}  // namespace pp::plan::detail
