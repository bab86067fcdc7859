#include "libprofile/model/layer_graph.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::model::detail {
namespace {

using torch::autograd::Edge;
using torch::autograd::variable_list;

/// Stands where a leaf would stand, without holding its tensor. The engine captures gradients on the way into
/// it.
struct Boundary : torch::autograd::Node {
  variable_list apply(variable_list&& /*gradients*/) override {
    throw Error(ErrorKind::internal, "layer graph: a gradient passed the layer's input");
  }
};

/// Where no path leads back to an input (a layer that detaches it, or makes integers of it), its gradient is
/// zero: whoever made it waits for one.
void fill_unreached(const Edges& wanted, Tensors& results) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].is_valid() || results[i].defined()) continue;
    auto* start = dynamic_cast<Boundary*>(wanted[i].function.get());
    if (start != nullptr) results[i] = start->input_metadata(0).zeros_like();
  }
}

bool has_default_strides(const at::Tensor& tensor) {
  std::int64_t stride = 1;
  for (std::int64_t d = tensor.dim(); d-- > 0;) {
    if (tensor.stride(d) != stride) return false;
    stride *= tensor.size(d);
  }
  return true;
}

bool has_strides(const at::Tensor& tensor, at::MemoryFormat format) {
  return format == at::MemoryFormat::Contiguous
             ? has_default_strides(tensor)
             : tensor.strides() == at::IntArrayRef(c10::get_channels_last_strides_2d(tensor.sizes()));
}

}  // namespace

at::Tensor cut_input(const at::Tensor& tensor, Edge& edge) {
  at::Tensor start = tensor.detach();
  edge = Edge(std::make_shared<Boundary>(), 0);
  torch::autograd::create_gradient_edge(start, edge.function);
  return start;
}

Edge output_edge(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

at::Tensor dense(const at::Tensor& tensor, MemoryFormat format) {
  const at::MemoryFormat wanted = memory_format(format, tensor.dim());
  if (has_strides(tensor, wanted) && tensor.storage().nbytes() == tensor.nbytes()) return tensor;
  return tensor.clone(wanted);
}

at::Tensor arranged(const at::Tensor& tensor, MemoryFormat format) {
  const at::MemoryFormat wanted = memory_format(format, tensor.dim());
  return has_strides(tensor, wanted) ? tensor : tensor.clone(wanted);
}

Tensors run_backward(const LayerGraph& graph, TensorSpan output_gradients, const Edges& wanted, Graph after,
                     EngineCall& call) {
  call.clear();
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (!graph.outputs[i].is_valid() || !output_gradients[i].defined()) continue;
    call.roots.push_back(graph.outputs[i]);
    call.gradients.push_back(output_gradients[i]);
  }
  for (const Edge& edge : wanted) {
    if (edge.is_valid()) call.wanted.push_back(edge);
  }
  Tensors results(wanted.size());
  if (call.wanted.empty()) return results;
  if (call.roots.empty()) {
    fill_unreached(wanted, results);
    return results;
  }
  variable_list found = torch::autograd::Engine::get_default_engine().execute(
      call.roots, call.gradients, after == Graph::keep, /*create_graph=*/false, /*accumulate_grad=*/false,
      call.wanted);
  call.clear();
  for (std::size_t i = 0, next = 0; i < wanted.size(); ++i) {
    if (wanted[i].is_valid()) results[i] = std::move(found[next++]);
  }
  fill_unreached(wanted, results);
  return results;
}

void add_leaf_edges(TensorSpan leaves, Edges& edges) {
  for (const at::Tensor& leaf : leaves) edges.push_back(torch::autograd::impl::gradient_edge(leaf));
}

}  // namespace pp::model::detail
