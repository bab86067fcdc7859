#include "libprofile/estimate/operation_work.h"

#include <algorithm>

namespace pp::profile {
namespace {

/// Of the FLOPs of attention by one kernel, what its backward computes: five products in place of two (Dao,
/// FlashAttention-2, ICLR 2024, sec. 4.1).
constexpr double kOneKernelBackward = 2.5;
/// Written, then added to the gradient of the mini-batch.
constexpr double kGradientPasses = 4;

/// Whether it multiplies matrices beside attention.
bool is_product(const OperationSize& size) {
  return size.work.kind == OpWork::Kind::products && size.work.weight_products > 0;
}
bool is_attention(const OperationSize& size) { return size.work.attention && size.inside.flops > 0; }
double weight_flops(const OperationSize& size) { return size.flops - std::min(size.inside.flops, size.flops); }

/// One stretch of kernels for the whole operation.
Work whole(const OperationSize& size, double flops, double bytes) {
  const WorkKind kind = size.loss ? WorkKind::loss : is_product(size) ? WorkKind::product : WorkKind::elements;
  Work work{.kind = kind, .bytes = bytes, .kernels = size.work.kernels, .aligned = size.aligned};
  (is_product(size) ? work.products : work.vector) = flops;
  if (is_product(size) && flops > 0) work.product_calls = size.work.weight_products;
  work.narrow = size.narrow > 0;
  work.full = size.full;
  return work;
}

/// What there is beside attention: products with weights, or rotations of what is given.
Work projections(const OperationSize& size, double bytes) {
  OperationSize projected = size;
  projected.work.kernels = std::max(1, size.work.weight_products);
  return whole(projected, weight_flops(size), bytes);
}

/// Attention itself, `times` the FLOPs of a forward, in so many kernels: one, or products and then passes over
/// the scores.
std::vector<Work> attention(const OperationSize& size, double times, double moved, int kernels) {
  const double flops = times * size.inside.flops;
  if (size.inside.one_kernel) {
    return {{.kind = WorkKind::attention,
             .products = flops * size.inside.computed,
             .bytes = moved,
             .kernels = kernels,
             .product_calls = 1}};
  }
  const int products = static_cast<int>(2 * times);
  return {{.kind = WorkKind::attention, .products = flops, .kernels = products, .product_calls = products},
          {.kind = WorkKind::attention, .bytes = moved, .kernels = std::max(0, kernels - products)}};
}

void append(std::vector<Work>& all, const std::vector<Work>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

/// The share of a product's factors that it reads; casts in front of it read the rest.
double factor(const OperationSize& size) { return size.narrow > 0 ? size.narrow : 1; }

/// The casts in front of it, if there are any.
void add_cast(std::vector<Work>& works, double bytes) {
  if (bytes > 0) works.push_back({.kind = WorkKind::product, .bytes = bytes, .kernels = 1});
}

std::vector<Work> joined(Work first, std::vector<Work> rest) {
  rest.insert(rest.begin(), first);
  return rest;
}

}  // namespace

std::vector<Work> attention_work(const OperationSize& size) {
  const int kernels = std::max(1, size.work.kernels - std::max(1, size.work.weight_products));
  return attention(size, 1, size.element * size.inside.moved, kernels);
}

std::vector<Work> forward_work(const OperationSize& size) {
  const double weights = size.element * size.weights, moved = size.element * size.inside.moved;
  const double factors = factor(size) * (size.in + weights);
  std::vector<Work> works;
  add_cast(works, size.cast.forward);
  if (is_attention(size)) {
    append(works, joined(projections(size, factors + size.out), attention_work(size)));
    return works;
  }
  // An embedding reads the rows it hands on.
  const double read = is_product(size) ? factors : size.in + std::min(weights, size.out);
  works.push_back(whole(size, size.flops, read + size.out + moved));
  return works;
}

std::vector<Work> input_gradient_work(const OperationSize& size) {
  std::vector<Work> works;
  const double weights = size.element * size.weights, moved = size.element * size.inside.moved;
  const double factors = factor(size) * (size.out + weights);
  add_cast(works, size.cast.backward);
  if (size.passes && !size.work.passes_gradients && is_attention(size)) {
    const Work first = projections(size, factors + size.gradient);
    const double times = size.inside.one_kernel ? kOneKernelBackward : 2;
    append(works,
           joined(first, attention(size, times, 2 * moved, std::max(1, size.work.kernels - first.kernels))));
  } else if (size.passes && !size.work.passes_gradients) {
    // Both factors of a product without weights have gradients. What is not a product reads what it kept.
    const double read = is_product(size) ? factors + 2 * moved : size.out + size.kept + moved;
    const double flops =
        size.weights > 0 || !is_product(size) ? size.flops + size.inside.flops : 2 * size.flops;
    works.push_back(whole(size, flops, read + size.gradient));
  }
  if (!size.gradients_together || !size.passes) return works;
  OperationSize alone = size;
  alone.gradients_together = false;
  append(works, weight_gradient_work(alone));
  return works;
}

std::vector<Work> weight_gradient_work(const OperationSize& size) {
  if (size.trained == 0 || (size.gradients_together && size.passes)) return {};
  const double share = size.trained / size.weights;
  const double added = kGradientPasses * size.element * size.trained;
  if (!is_product(size)) return {whole(size, 0, size.out + added)};
  const double bytes = factor(size) * (size.out + share * size.in) + added;
  OperationSize trained = size;
  if (is_attention(size)) trained.work.kernels = size.work.weight_products;
  return {whole(trained, share * weight_flops(size), bytes)};
}

}  // namespace pp::profile
