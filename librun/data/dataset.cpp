#include "librun/data/dataset.h"

#include <ATen/DimVector.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/ops.h"
#include "librun/data/model_data.h"

namespace pp::run {

namespace {

// Fewer are not worth a thread.
constexpr std::size_t kBytesOfThread = std::size_t{1} << 18;

template <class Column>
const Column& column_of(const TensorSource& source, const std::vector<Column>& inputs,
                        const std::vector<Column>& targets) {
  const auto& columns = source.kind == TensorSource::Kind::input ? inputs : targets;
  return columns[static_cast<std::size_t>(source.index)];
}

at::ScalarType tensor_type(ElementType type) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8: return at::kByte;
    case ElementType::int8: return at::kChar;
    case ElementType::uint16: return at::kUInt16;
    case ElementType::int16: return at::kShort;
    case ElementType::uint32: return at::kUInt32;
    case ElementType::int32: return at::kInt;
    case ElementType::int64: return at::kLong;
    case ElementType::float16: return at::kHalf;
    case ElementType::bfloat16: return at::kBFloat16;
    case ElementType::float32: return at::kFloat;
    case ElementType::float64: return at::kDouble;
  }
  return at::kByte;
}

at::Tensor room(at::IntArrayRef sizes, at::ScalarType type, bool pinned) {
  return profile::host_room(sizes, type, at::MemoryFormat::Contiguous, pinned);
}

/// The records of `samples` one after another, to `out`.
void read(const Records& records, std::span<const std::int64_t> samples, char* out) {
  const std::size_t size = records.sample_bytes();
  at::parallel_for(0, std::ssize(samples), static_cast<std::int64_t>(1 + kBytesOfThread / size),
                   [&](std::int64_t begin, std::int64_t end) {
                     const auto first = static_cast<std::size_t>(begin),
                                count = static_cast<std::size_t>(end - begin);
                     read_records(records, samples.subspan(first, count), {out + first * size, count * size});
                   });
}

class RecordDataset final : public Dataset {
 public:
  RecordDataset(const ResolvedModel& model, SampleTable table, const TensorOptions& options)
      : source_(std::move(table.source)), first_(table.first), samples_(table.samples) {
    const ModelGraph& graph = model.graph;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const double scale = input_scale(graph.inputs[i], table.inputs[i], options.scale);
      inputs_.push_back(make_column(graph.inputs[i], std::move(table.inputs[i]), options.dtype, scale));
    }
    for (std::size_t i = 0; i < graph.targets.size(); ++i)
      targets_.push_back(make_column(graph.targets[i], std::move(table.targets[i]), options.dtype, 1));
  }

  const std::string& source() const override { return source_; }
  std::int64_t samples() const override { return samples_; }
  bool in_memory() const override {
    const auto kept = [](const Column& column) {
      return std::ranges::all_of(column.records.parts,
                                 [](const auto& part) { return part.bytes->in_memory(); });
    };
    return std::ranges::all_of(inputs_, kept) && std::ranges::all_of(targets_, kept);
  }

  at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples,
                  bool pinned) const override {
    const Column& column = column_of(source, inputs_, targets_);
    std::vector<std::int64_t> stored(samples.begin(), samples.end());
    for (std::int64_t& sample : stored) sample += first_;
    const Records& records = column.records;
    const at::ScalarType type = tensor_type(records.type);
    const at::Tensor raw =
        room({std::ssize(stored), element_count(records.shape)}, type, pinned && type == column.type);
    read(records, stored, static_cast<char*>(raw.mutable_data_ptr()));
    Shape shape = column.shape;
    shape.insert(shape.begin(), std::ssize(stored));
    at::Tensor values =
        (type == column.type ? raw : room(raw.sizes(), column.type, pinned).copy_(raw)).reshape(shape);
    if (column.scale != 1) values.mul_(column.scale);
    return values;
  }

 private:
  struct Column {
    Records records;
    Shape shape;  ///< per sample, as the model wants it
    at::ScalarType type;
    double scale;
  };

  static Column make_column(const DataTensor& tensor, Records records, DType dtype, double scale) {
    const DType wanted = is_floating(tensor.type.dtype) ? dtype : tensor.type.dtype;
    return {std::move(records), tensor.type.shape, model::scalar_type(wanted), scale};
  }

  std::string source_;
  std::int64_t first_, samples_;
  std::vector<Column> inputs_, targets_;
};

}  // namespace

at::Tensor MemoryDataset::rows(const TensorSource& source, std::span<const std::int64_t> samples,
                               bool pinned) const {
  const Column& column = column_of(source, inputs, targets);
  const auto count = static_cast<std::int64_t>(samples.size());
  const at::Tensor index = at::from_blob(const_cast<std::int64_t*>(samples.data()), {count}, at::kLong);
  at::DimVector shape(column.values.sizes());
  shape.front() = count;
  at::Tensor values = room(shape, column.type, pinned);
  return column.values.scalar_type() == column.type ? at::index_select_out(values, column.values, 0, index)
                                                    : values.copy_(at::index_select(column.values, 0, index));
}

std::unique_ptr<const Dataset> open_records(const ResolvedModel& model, SampleTable table,
                                            const TensorOptions& options) {
  return std::make_unique<RecordDataset>(model, std::move(table), options);
}

}  // namespace pp::run
