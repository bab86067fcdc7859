#include "libprofile/core/model/label_call.h"

#include <string_view>
#include <variant>

namespace pp {
namespace {

template <class T>
const T* find(const AtenCall& call, std::string_view argument) {
  const auto found = call.arguments.find(argument);
  return found == call.arguments.end() ? nullptr : std::get_if<T>(&found->second.value);
}

std::optional<int> input(const AtenCall& call, std::string_view argument) {
  const auto* tensor = find<TensorArgument>(call, argument);
  if (tensor == nullptr || tensor->kind != TensorArgument::Kind::input) return std::nullopt;
  return tensor->index;
}

}  // namespace

std::optional<LabelCall> label_call(const AtenCall& call) {
  if (!call.target.starts_with("aten::cross_entropy_loss") && !call.target.starts_with("aten::nll_loss"))
    return std::nullopt;
  const std::optional<int> prediction = input(call, "self"), labels = input(call, "target");
  if (!prediction || !labels) return std::nullopt;
  LabelCall found{*prediction, *labels};
  if (const auto* ignored = find<std::int64_t>(call, "ignore_index")) found.ignored = *ignored;
  if (const auto* reduction = find<std::int64_t>(call, "reduction")) found.mean = *reduction == 1;
  if (const auto* weights = find<TensorArgument>(call, "weight")) found.weights = *weights;
  return found;
}

// The prediction is [rows, classes, ...]: its first size beside the batch.
std::int64_t LabelCall::classes(const std::vector<RowTensor>& inputs) const {
  const Shape& shape = inputs[static_cast<std::size_t>(prediction)].type.shape;
  return shape.empty() ? 0 : shape.front();
}

}  // namespace pp
