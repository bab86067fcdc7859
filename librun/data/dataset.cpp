#include "librun/data/dataset.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

namespace pp::run {

at::Tensor rows(const Column& column, std::span<const std::int64_t> samples) {
  const auto count = static_cast<std::int64_t>(samples.size());
  const at::Tensor index = at::from_blob(const_cast<std::int64_t*>(samples.data()), {count}, at::kLong);
  Shape shape = column.shape;
  shape.insert(shape.begin(), count);
  at::Tensor values = at::index_select(column.values, 0, index).to(column.type).reshape(shape);
  if (column.scale != 1) values.mul_(column.scale);
  return values;
}

at::Tensor cut(const Dataset& data, const TensorSource& source, std::span<const std::int64_t> samples) {
  const std::vector<Column>& columns = source.kind == TensorSource::Kind::input ? data.inputs : data.targets;
  return rows(columns[static_cast<std::size_t>(source.index)], samples);
}

std::int64_t class_count(const ResolvedModel& model) {
  if (!model.graph.loss || model.graph.loss->op != "cross_entropy") return 0;
  const TensorSource& prediction = model.loss_sources.front();
  if (prediction.kind != TensorSource::Kind::layer) return 0;
  const auto layer = static_cast<std::size_t>(prediction.index);
  return model.layers[layer].outputs[static_cast<std::size_t>(prediction.output)].shape.back();
}

}  // namespace pp::run
