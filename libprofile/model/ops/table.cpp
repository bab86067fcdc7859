#include <algorithm>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace ops {
namespace {

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const std::span<const Row> group :
       {activation_rows(), arithmetic_rows(), attention_rows(), convolution_rows(), dropout_rows(),
        embedding_rows(), grouped_query_attention_rows(), linear_rows(), normalisation_rows(), pooling_rows(),
        recurrent_rows(), relative_position_rows(), shape_rows()})
    rows.insert(rows.end(), group.begin(), group.end());
  std::ranges::sort(rows, {}, &Row::name);
  return rows;
}

}  // namespace

std::span<const Row> table() {
  static const std::vector<Row> rows = all_rows();
  return rows;
}

const Row* find(std::string_view name) {
  const auto row = std::ranges::find(table(), name, &Row::name);
  return row == table().end() ? nullptr : &*row;
}

}  // namespace ops

BoundLayer bind_layer(std::string_view op, const Attributes& attributes) {
  const ops::Row* row = ops::find(op);
  if (row == nullptr) throw Error(ErrorKind::data, "this operation can be planned, but not run");
  const bool with_input = find_op(op)->weight_gradient_with_input;
  if (row->bind_whole != nullptr) {
    BoundLayer layer = row->bind_whole(attributes);
    if (with_input) layer.weight_gradient = WeightGradient::with_input;
    return layer;
  }
  BoundLayer layer{row->bind(attributes), with_input ? WeightGradient::with_input : WeightGradient::separate};
  if (row->backward != nullptr) layer.backward = row->backward(attributes);
  layer.deterministic = row->deterministic;
  return layer;
}

std::vector<std::string_view> runnable_ops() {
  std::vector<std::string_view> names;
  for (const ops::Row& row : ops::table()) names.push_back(row.name);
  return names;
}

}  // namespace pp::model
