// Mixtures of experts: Shazeer et al., Outrageously large neural networks, 2017; groups of experts and
// corrected scores: DeepSeek-AI, DeepSeek-V3 technical report, 2024, sec. 2.1.2. Positions are sorted by their
// experts, so that each expert has one product a matrix; no expert refuses a position, so samples stay apart.
// The backward is written: it adds no two rows in an order that a kernel chooses.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/kernels/kernels.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/ops/normalisation.h"

namespace pp::model::ops {
/// What a router makes of its logits.
enum class Scores { softmax, sigmoid };
}  // namespace pp::model::ops

template <>
struct pp::EnumNames<pp::model::ops::Scores> {
  static constexpr std::array table{std::pair{pp::model::ops::Scores::softmax, std::string_view("softmax")},
                                    std::pair{pp::model::ops::Scores::sigmoid, std::string_view("sigmoid")}};
};

namespace pp::model::ops {
namespace {

struct Mixture {
  std::int64_t experts, chosen, groups, open_groups;
  bool sigmoid, normalised, correction, biased;
  double factor, limit, alpha;
  GateActivation activation;

  explicit Mixture(const Attributes& attributes)
      : experts(integer(attributes, "num_experts")),
        chosen(integer(attributes, "experts_per_token")),
        groups(integer(attributes, "groups")),
        open_groups(integer(attributes, "groups_per_token")),
        sigmoid(choice<Scores>(attributes, "scores") == Scores::sigmoid),
        normalised(boolean(attributes, "normalised")),
        correction(boolean(attributes, "correction")),
        biased(boolean(attributes, "bias")),
        factor(number(attributes, "factor")),
        limit(number(attributes, "limit")),
        alpha(number(attributes, "alpha")),
        activation(choice<GateActivation>(attributes, "activation")) {}
};

/// Against a division by zero where all chosen scores vanish, as transformers has it.
constexpr double kLeastSum = 1e-20;

/// [t, width] -> [t, experts], in float32 or wider, under autocast too.
at::Tensor scores_of(const Mixture& mixture, const at::Tensor& x, TensorSpan weights) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor bias = mixture.biased ? weights[1].to(wide(x)) : at::Tensor();
  const at::Tensor logits = at::linear(x.to(wide(x)), weights[0].to(wide(x)), bias);
  return mixture.sigmoid ? logits.sigmoid() : at::softmax(logits, -1);
}

/// [t, chosen]: the experts of the highest scores, within the groups that are best by their two highest
/// corrected scores, without a correction by their highest one (DeepSeek-V2).
at::Tensor choose(const Mixture& mixture, const at::Tensor& scores, TensorSpan buffers) {
  at::Tensor ranked = scores.detach();
  if (!buffers.empty()) ranked = ranked.add(buffers[0]);
  if (mixture.open_groups < mixture.groups) {
    const at::Tensor grouped = ranked.unflatten(1, {mixture.groups, -1});  // [t, groups, experts of one]
    const std::int64_t best = std::min<std::int64_t>(mixture.correction ? 2 : 1, grouped.size(2));
    const at::Tensor of_group = std::get<0>(grouped.topk(best, 2)).sum(2);
    const at::Tensor open = std::get<1>(of_group.topk(mixture.open_groups, 1));
    const at::Tensor closed =
        at::ones(of_group.sizes(), of_group.options().dtype(at::kBool)).scatter_(1, open, 0);
    ranked = grouped.masked_fill(closed.unsqueeze(2), -std::numeric_limits<double>::infinity()).flatten(1);
  }
  return std::get<1>(ranked.topk(mixture.chosen, 1));
}

/// [t, chosen], what the results of the chosen experts are multiplied with.
at::Tensor shares_of(const Mixture& mixture, const at::Tensor& scores, const at::Tensor& chosen) {
  const at::Tensor picked = scores.gather(1, chosen);
  return (mixture.normalised ? picked.div(picked.sum(1, true).add(kLeastSum)) : picked).mul(mixture.factor);
}

/// From the gradient of the shares to that of the router's logits, [t, experts].
at::Tensor shares_backward(const Mixture& mixture, const at::Tensor& scores, const at::Tensor& chosen,
                           const at::Tensor& gradient) {
  at::Tensor of_picked = gradient.mul(mixture.factor);
  if (mixture.normalised) {
    const at::Tensor picked = scores.gather(1, chosen), sum = picked.sum(1, true).add(kLeastSum);
    of_picked = of_picked.sub(of_picked.mul(picked).sum(1, true).div(sum)).div(sum);
  }
  const at::Tensor of_scores = at::zeros_like(scores).scatter_(1, chosen, of_picked);
  if (mixture.sigmoid) return at::sigmoid_backward(of_scores, scores);
  return of_scores.sub(of_scores.mul(scores).sum(1, true)).mul(scores);
}

/// A row for each position and each of its experts, [r, ...] with r = t chosen: those of the first expert, in
/// the order of the positions, then those of the second.
struct Rows {
  at::Tensor pairs;  ///< [r], counted position by position
  at::Tensor ends;   ///< [experts], on the host: behind the last row of each
  std::int64_t chosen;

  at::Tensor of_positions(const at::Tensor& x) const { return x.index_select(0, pairs.div(chosen, "floor")); }
  at::Tensor of_pairs(const at::Tensor& x) const { return x.flatten().index_select(0, pairs); }
  /// [r, ...] -> [t, chosen, ...]
  at::Tensor by_position(const at::Tensor& rows) const {
    const at::Tensor places =
        at::empty_like(pairs).scatter_(0, pairs, at::arange(pairs.size(0), pairs.options()));
    return rows.index_select(0, places).unflatten(0, {-1, chosen});
  }
  /// part(expert, first row, how many)
  template <class Part>
  void each(const Part& part) const {
    const auto* const end = ends.const_data_ptr<std::int64_t>();
    for (std::int64_t e = 0, first = 0; e < ends.size(0); first = end[e++]) part(e, first, end[e] - first);
  }
};

Rows rows_of(const Mixture& mixture, const at::Tensor& chosen) {
  const auto [experts, pairs] = at::sort(chosen.flatten(), /*stable=*/true, 0, /*descending=*/false);
  const at::Tensor all = at::arange(mixture.experts, experts.options());
  return {pairs, at::searchsorted(experts, all, /*out_int32=*/false, /*right=*/true).cpu(), mixture.chosen};
}

/// Among the three matrices of an expert; the router's stands in front of all. With biases kGate is gate and up
/// in turn, [experts, in, 2 out], and behind it and kDown stand their biases.
enum Matrix : std::size_t { kGate, kUp, kDown };
std::size_t index_of(const Mixture& mixture, std::int64_t expert, Matrix matrix) {
  return mixture.biased ? 2 + static_cast<std::size_t>(matrix)
                        : 1 + 3 * static_cast<std::size_t>(expert) + matrix;
}

/// Forward by the transposed matrix [out, in] of each row's expert: [r, in] -> [r, out]; backward [r, out] ->
/// [r, in]. Experts without rows take part: their gradients are zero, not missing.
enum class Way { forward, backward };
at::Tensor product(const Mixture& mixture, const Rows& rows, const at::Tensor& left, TensorSpan weights,
                   Matrix matrix, Way way) {
  std::vector<at::Tensor> parts;
  rows.each([&](std::int64_t e, std::int64_t first, std::int64_t count) {
    const std::size_t index = index_of(mixture, e, matrix);
    const at::Tensor right = mixture.biased ? weights[index][e].t() : weights[index],
                     own = left.narrow(0, first, count);
    if (way == Way::backward) {
      parts.push_back(at::mm(own, right));
    } else {
      parts.push_back(mixture.biased ? at::addmm(weights[index + 1][e], own, right.t())
                                     : at::mm(own, right.t()));
    }
  });
  return at::cat(parts);
}

/// [r, hidden] each: activation(gate) up, or with a limit g sigmoid(alpha g) (u + 1) of what it leaves of both.
at::Tensor gated(const Mixture& mixture, const at::Tensor& gates, const at::Tensor& ups) {
  if (mixture.limit == 0) return opened(mixture.activation, gates).mul(ups);
  const at::Tensor gate = gates.clamp_max(mixture.limit);
  return gate.mul(gate.mul(mixture.alpha).sigmoid()).mul(ups.clamp(-mixture.limit, mixture.limit).add(1));
}

/// To the gradients of gates and ups.
std::pair<at::Tensor, at::Tensor> gated_backward(const Mixture& mixture, const at::Tensor& gradient,
                                                 const at::Tensor& gates, const at::Tensor& ups) {
  if (mixture.limit == 0)
    return {opened_backward(mixture.activation, gradient.mul(ups), gates),
            opened(mixture.activation, gates).mul_(gradient)};
  const at::Tensor gate = gates.clamp_max(mixture.limit), steep = gate.mul(mixture.alpha);
  const at::Tensor share = steep.sigmoid(), slope = steep.mul_(share.neg().add_(1)).add_(1).mul_(share);
  const at::Tensor of_gate = ups.clamp(-mixture.limit, mixture.limit).add_(1).mul_(gradient).mul_(slope);
  return {of_gate.masked_fill_(gates.gt(mixture.limit), 0),
          gate.mul(share).mul_(gradient).masked_fill_(ups.abs().gt(mixture.limit), 0)};
}

/// What the forward saves, and what the input gradient leaves for the weights' in place of it. With biases
/// gates and ups, as their gradients, are one tensor.
enum Saved : std::size_t { kInput, kPairs, kEnds, kRows, kActivated, kScores, kChosen, kShares, kGates, kUps };
enum Left : std::size_t { kOfDown = kScores, kOfLogits, kOfGate, kOfUp };

/// Of [r, 2 hidden].
Tensors in_turn(const at::Tensor& both) {
  const at::Tensor pairs = both.unflatten(1, {-1, 2});
  return {pairs.select(2, 0), pairs.select(2, 1)};
}

// [n, ..., width] -> the same
Tensors forward(const Mixture& mixture, TensorSpan inputs, TensorSpan weights, LayerContext& context) {
  const at::Tensor x = once(inputs[0].flatten(0, -2));  // [t, width]
  const at::Tensor scores = scores_of(mixture, x, weights), chosen = choose(mixture, scores, context.buffers);
  const at::Tensor shares = shares_of(mixture, scores, chosen);
  const Rows rows = rows_of(mixture, chosen);
  const UsualKernels usual;
  const at::Tensor own = rows.of_positions(x);  // [r, width]
  Tensors both{product(mixture, rows, own, weights, kGate, Way::forward)};
  if (!mixture.biased) both.push_back(product(mixture, rows, own, weights, kUp, Way::forward));
  const Tensors halves = mixture.biased ? in_turn(both[0]) : both;
  const at::Tensor activated = gated(mixture, halves[0], halves[1]);  // [r, hidden]
  const at::Tensor downs = product(mixture, rows, activated, weights, kDown, Way::forward);
  save(context, {x, rows.pairs, rows.ends, own, activated, scores, chosen, shares, both[0], both.back()});
  const at::Tensor weighted = downs.mul(rows.of_pairs(shares).to(downs.scalar_type()).unsqueeze(1));
  return {rows.by_position(weighted).sum(1).view(inputs[0].sizes())};
}

Rows saved_rows(const Mixture& mixture, TensorSpan saved) {
  return {saved[kPairs], saved[kEnds], mixture.chosen};
}

/// To the gradients of what the products by weights give, which it leaves.
void back_to_products(const Mixture& mixture, TensorSpan weights, const at::Tensor& gradient, Tensors& saved) {
  const Rows rows = saved_rows(mixture, saved);
  const at::Tensor of_down = rows.of_positions(gradient.flatten(0, -2));  // [r, width], less the share
  const at::Tensor of_activated = product(mixture, rows, of_down, weights, kDown, Way::backward);
  const at::Tensor& scores = saved[kScores];
  at::Tensor of_rows = of_activated.mul(saved[kActivated]).sum(1, false, scores.scalar_type());
  if (mixture.biased) {
    const at::Tensor& biases = weights[index_of(mixture, 0, kDown) + 1];
    rows.each([&](std::int64_t e, std::int64_t first, std::int64_t count) {
      of_rows.narrow(0, first, count).add_(of_down.narrow(0, first, count).mv(biases[e]));
    });
  }
  const at::Tensor of_shares = rows.by_position(of_rows);
  const at::Tensor share = rows.of_pairs(saved[kShares]).to(of_down.scalar_type()).unsqueeze(1);
  of_activated.mul_(share);
  const Tensors halves = mixture.biased ? in_turn(saved[kGates]) : Tensors{saved[kGates], saved[kUps]};
  const auto [of_gate, of_up] = gated_backward(mixture, of_activated, halves[0], halves[1]);
  const at::Tensor of_logits = shares_backward(mixture, scores, saved[kChosen], of_shares);
  saved.resize(kOfDown);
  saved.append({of_down.mul(share), of_logits});
  if (mixture.biased) {
    saved.push_back(at::stack({of_gate, of_up}, 2).flatten(1));
  } else {
    saved.append({of_gate, of_up});
  }
}

Tensors input_gradient(const Mixture& mixture, Tensors& saved, TensorSpan weights, const at::Tensor& gradient) {
  const UsualKernels usual;
  back_to_products(mixture, weights, gradient, saved);
  const Rows rows = saved_rows(mixture, saved);
  const at::Tensor own = product(mixture, rows, saved[kOfGate], weights, kGate, Way::backward);
  if (!mixture.biased) own.add_(product(mixture, rows, saved[kOfUp], weights, kUp, Way::backward));
  const at::Tensor of_router = saved[kOfLogits].mm(weights[0].to(saved[kOfLogits].scalar_type()));
  return {rows.by_position(own).sum(1).add_(of_router).view(gradient.sizes())};
}

void weight_gradients(const Mixture& mixture, Tensors& saved, TensorSpan weights, const at::Tensor& gradient,
                      WeightSums& sums) {
  const UsualKernels usual;
  if (saved.size() > kUps) back_to_products(mixture, weights, gradient, saved);
  const at::Tensor& of_logits = saved[kOfLogits];
  if (sums.wants(0))
    sums.add(0, of_logits.t().mm(saved[kInput].to(of_logits.scalar_type())).to(weights[0].scalar_type()));
  std::array<std::vector<at::Tensor>, 3> of_biases;
  saved_rows(mixture, saved).each([&](std::int64_t e, std::int64_t first, std::int64_t count) {
    const auto add = [&](Matrix matrix, std::size_t left, std::size_t right) {
      const at::Tensor of_result = saved[left].narrow(0, first, count),
                       of_input = saved[right].narrow(0, first, count);
      const std::size_t index = index_of(mixture, e, matrix);
      if (mixture.biased) {
        sums.add_product(index, e, of_input.t(), of_result);
        of_biases[matrix].push_back(of_result.sum(0));
      } else {
        sums.add_product(index, of_result.t(), of_input);
      }
    };
    add(kGate, kOfGate, kRows);
    if (!mixture.biased) add(kUp, kOfUp, kRows);
    add(kDown, kOfDown, kActivated);
  });
  if (!mixture.biased) return;
  sums.add(1, of_logits.sum(0).to(weights[1].scalar_type()));
  for (const Matrix matrix : {kGate, kDown})
    sums.add(index_of(mixture, 0, matrix) + 1, at::stack(of_biases[matrix]));
}

BoundLayer mixture_of_experts(const Attributes& attributes) {
  const Mixture mixture(attributes);
  return {.forward = [mixture](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
            return forward(mixture, inputs, weights, context);
          },
          .backward = WrittenBackward{
              .inputs = [mixture](Tensors& saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
                return input_gradient(mixture, saved, weights, gradient);
              },
              .weights = [mixture](
                             Tensors& saved, TensorSpan weights, const at::Tensor& gradient,
                             WeightSums& sums) { weight_gradients(mixture, saved, weights, gradient, sums); }}};
}

constexpr std::array kExpertRows{Row{.name = "mixture_of_experts",
                                     .bind = nullptr,
                                     .initialise = initialise_experts,
                                     .bind_whole = mixture_of_experts}};

}  // namespace

std::span<const Row> expert_rows() { return kExpertRows; }

}  // namespace pp::model::ops
