// Operations by name: the code of a layer, and the seed of what it draws.
#include "libprofile/model/ops.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
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
       {activation_rows(), arithmetic_rows(), attention_rows(), convolution_rows(), dropout_rows(),
        embedding_rows(), expert_rows(), grouped_query_attention_rows(), linear_rows(), normalisation_rows(),
        pooling_rows(), recurrent_rows(), relative_position_rows(), shape_rows()})
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
