// FLOPs of a model's products of matrices, by the op table: what "model FLOPs" are counted from. Of a language
// model they are 6 N D for N weights in products and D tokens, and attention's scores (Chowdhery et al., PaLM,
// 2022, appendix B; Narayanan et al., SC'21, appendix). Shapes alone: nothing is measured.
#pragma once

#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// Per sample. `backward` has the gradients of inputs that are needed and of weights that are trained, each
/// as many FLOPs as the forward: twice that where all of both are computed. `masked`: of both together, pairs
/// of positions that a causal mask hides, which a kernel of attention need not compute.
struct PassFlops {
  double forward = 0, backward = 0, masked = 0;
  bool operator==(const PassFlops&) const = default;
};

/// Per layer. Operations that are no products (norms, activations, pools) count nothing, calls of LibTorch what
/// they say, mixtures their router and the experts that each token needs. Attention counts all pairs of
/// positions, also under a causal mask, and its softmax with its products, 5 FLOPs a pair. Within a graph every
/// node is counted with the gradient of its input. The loss counts nothing. O(layers + nodes).
std::vector<PassFlops> product_flops(const ResolvedModel& model);

/// Tokens in a sample: elements of the largest input whose integers an embedding looks up; 0: the model has
/// none.
std::int64_t tokens_per_sample(const ResolvedModel& model);

}  // namespace pp
