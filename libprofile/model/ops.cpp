// Operations by name: the code of a layer, and the seed of what it draws.
#include "libprofile/model/ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/determinism.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {

namespace {

/// One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
std::uint64_t splitmix(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace

std::uint64_t mix(const RandomKey& key, int layer) {
  std::uint64_t state = splitmix(key.seed);
  state = splitmix(state ^ static_cast<std::uint64_t>(key.step));
  state = splitmix(state ^ static_cast<std::uint64_t>(key.micro_batch));
  return splitmix(state ^ static_cast<std::uint64_t>(layer));
}

namespace ops {
namespace {

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const std::span<const Row> group :
       {attention_rows(), convolution_rows(), dropout_rows(), elementwise_rows(), embedding_rows(),
        expert_rows(), grouped_query_attention_rows(), linear_rows(), normalisation_rows(), recurrent_rows(),
        shape_rows()})
    rows.insert(rows.end(), group.begin(), group.end());
  return rows;
}

}  // namespace

const Row* find(std::string_view name) {
  static const std::vector<Row> rows = all_rows();
  const auto row = std::ranges::find(rows, name, &Row::name);
  return row == rows.end() ? nullptr : &*row;
}

namespace {

/// One number stands for each side of a window.
c10::IValue value_of(const Attribute& attribute, const c10::Argument& argument) {
  const auto* number = std::get_if<std::int64_t>(&attribute);
  if (number != nullptr && argument.N())
    return std::vector<std::int64_t>(static_cast<std::size_t>(*argument.N()), *number);
  return std::visit([](const auto& value) { return c10::IValue(value); }, attribute);
}

/// An operation of one input that is the function of LibTorch which its row names.
Forward called(const OpRow& row, const Attributes& attributes) {
  const std::string name = "aten::" + std::string(row.aten);
  const c10::OperatorHandle function = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  torch::jit::Stack further;
  for (const c10::Argument& argument : std::span(function.schema().arguments()).subspan(1)) {
    const auto found = attributes.find(argument.name());
    further.push_back(found == attributes.end() ? *argument.default_value()
                                                : value_of(found->second, argument));
  }
  return unary([function, further](const at::Tensor& x) {
    torch::jit::Stack stack{x};
    stack.insert(stack.end(), further.begin(), further.end());
    function.callBoxed(stack);
    return stack.front().toTensor();
  });
}

}  // namespace

}  // namespace ops

BoundLayer bind_layer(std::string_view op, const Attributes& attributes) {
  const OpRow& card = *find_op(op);
  const ops::Row* row = ops::find(op);
  BoundLayer layer;
  if (row != nullptr && row->bind_whole != nullptr) {
    layer = row->bind_whole(attributes);
  } else if (row != nullptr) {
    layer.forward = row->bind(attributes);
    if (row->backward != nullptr) layer.backward = row->backward(attributes);
  } else if (!card.aten.empty()) {
    layer.forward = ops::called(card, attributes);
  } else {
    throw Error(ErrorKind::data, "this operation can be planned, but not run");
  }
  if (card.weight_gradient_with_input) layer.weight_gradient = WeightGradient::with_input;
  layer.deterministic = !aten::is_nondeterministic(op);
  return layer;
}

}  // namespace pp::model
