#include "librun/stage/flat_layout.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace pp::run {

namespace {

/// Bytes. cuBLASLt takes its kernel by the alignment of the operands, up to 256: places that had less would
/// have other bits in another stage.
std::int64_t alignment_on(const at::Device& device) { return device.is_cuda() ? 256 : 64; }

std::int64_t padded(std::int64_t elements, std::int64_t multiple) {
  return (elements + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatTensors with_places(at::Tensor flat, const FlatTensors& like) {
  FlatTensors result{std::move(flat), {}};
  for (const at::Tensor& parameter : like.parameters) {
    const std::int64_t offset = parameter.storage_offset() - like.flat.storage_offset();
    result.parameters.push_back(
        result.flat.as_strided(parameter.sizes(), parameter.strides(), result.flat.storage_offset() + offset));
  }
  return result;
}

FlatLayout::FlatLayout(const ResolvedModel& model, const model::Segment& segment, DType dtype,
                       const at::Device& device)
    : options_(at::TensorOptions(model::scalar_type(dtype)).device(device)) {
  std::map<std::pair<int, std::size_t>, std::size_t>
      known;  // (layer that owns it, index) -> position in its list
  for (std::size_t layer = 0; layer < segment.layers().size(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(segment.layers()[layer])];
    layer_sizes_.push_back(resolved.parameters.size());
    for (std::size_t index = 0; index < resolved.parameters.size(); ++index) {
      std::vector<Parameter>& list = resolved.trained[index] ? parameters_ : frozen_;
      const auto [found, added] = known.try_emplace({resolved.weights_layer, index}, list.size());
      const Shape& shape = resolved.parameters[index].shape;
      const auto format = model::memory_format(segment.format(), std::ssize(shape));
      if (added) list.push_back({{}, shape, element_count(shape), format});
      list[found->second].uses.push_back({layer, index});
    }
  }
  const std::int64_t multiple = alignment_on(device) / size_of(dtype);
  const auto place_in = [&](std::int64_t& size, const Parameter& parameter, Use& use) {
    use.offset = std::exchange(size, size + padded(parameter.length, multiple));
  };
  const auto place = [&](const Parameter& parameter, Use& use) { place_in(gradient_size_, parameter, use); };
  for (Parameter& parameter : frozen_) place_in(frozen_size_, parameter, parameter.uses.front());
  for (Parameter& parameter : parameters_) place(parameter, parameter.uses.front());
  weight_size_ = gradient_size_;
  for (Parameter& parameter : parameters_) {
    for (std::size_t i = 1; i < parameter.uses.size(); ++i) place(parameter, parameter.uses[i]);
  }
}

std::vector<FlatLayout::Bucket> FlatLayout::buckets(std::int64_t least) const {
  std::vector<Bucket> buckets;
  std::int64_t end = weight_size_;
  for (std::size_t p = parameters_.size(); p-- > 0;) {
    const auto layer = parameters_[p].uses.front().layer;
    const bool first_of_layer = p == 0 || parameters_[p - 1].uses.front().layer != layer;
    const std::int64_t begin = parameters_[p].offset();
    if (p > 0 && (!first_of_layer || end - begin < least)) continue;
    buckets.push_back({static_cast<int>(layer), begin, end});
    end = begin;
  }
  if (weight_size_ < gradient_size_) buckets.push_back({0, weight_size_, gradient_size_});
  return buckets;
}

namespace {

/// Where the weights may be cut, ascending: elements from their beginning, and the row of which parameter
/// begins there.
struct Border {
  std::int64_t offset = 0;
  std::size_t parameter = 0;
  std::int64_t row = 0;
};

std::int64_t rows_of(const FlatLayout::Parameter& parameter) {
  return parameter.shape.empty() || parameter.length == 0 ? 1 : parameter.shape.front();
}

std::vector<Border> find_borders(const std::vector<FlatLayout::Parameter>& parameters) {
  std::vector<Border> borders;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const FlatLayout::Parameter& parameter = parameters[p];
    const std::int64_t rows = rows_of(parameter), row = std::max<std::int64_t>(1, parameter.length / rows);
    const std::int64_t step = std::lcm(row, kNormBlock) / row;
    for (std::int64_t first = 0; first < rows; first += step)
      borders.push_back({parameter.offset() + first * row, p, first});
  }
  return borders;
}

}  // namespace

std::vector<std::vector<FlatLayout::Piece>> FlatLayout::parts(std::size_t members) const {
  const std::vector<Border> borders = find_borders(parameters_);
  // The border nearest to each member's share of the elements; the first part begins with the weights.
  std::vector<std::size_t> begins{0};
  for (std::size_t m = 1; m < members; ++m) {
    const std::int64_t wanted =
        weight_size_ * static_cast<std::int64_t>(m) / static_cast<std::int64_t>(members);
    const auto above = std::ranges::lower_bound(borders, wanted, {}, &Border::offset);
    auto nearest = static_cast<std::size_t>(above - borders.begin());
    const std::int64_t there = above == borders.end() ? weight_size_ : above->offset;
    if (nearest > 0 && wanted - borders[nearest - 1].offset < there - wanted) --nearest;
    begins.push_back(std::max(begins.back(), nearest));
  }
  begins.push_back(borders.size());
  std::vector<std::vector<Piece>> parts(members);
  for (std::size_t m = 0; m < members; ++m) {
    for (std::size_t b = begins[m]; b < begins[m + 1]; ++b) {
      const Border& border = borders[b];
      const Parameter& parameter = parameters_[border.parameter];
      const std::int64_t rows = rows_of(parameter);
      const bool ends = b + 1 == borders.size() || borders[b + 1].parameter != border.parameter;
      const std::int64_t end = ends ? rows : borders[b + 1].row;
      const std::int64_t length = (end - border.row) * (parameter.length / rows);
      if (!parts[m].empty() && parts[m].back().parameter == border.parameter) {
        parts[m].back().end = end;
        parts[m].back().length += length;
      } else {
        parts[m].push_back({border.parameter, border.row, end, border.offset, length});
      }
    }
  }
  return parts;
}

at::Tensor FlatLayout::view(const at::Tensor& flat, const Parameter& parameter, const Piece& piece) {
  const at::Tensor all = view(flat, parameter, parameter.offset());
  return piece.end - piece.first == rows_of(parameter) ? all
                                                       : all.narrow(0, piece.first, piece.end - piece.first);
}

at::Tensor FlatLayout::view(const at::Tensor& flat, const Parameter& parameter, std::int64_t offset) {
  const at::Tensor part = flat.narrow(0, offset, parameter.length);
  const std::vector<std::int64_t>& shape = parameter.shape;
  return parameter.format == at::MemoryFormat::Contiguous
             ? part.view(shape)
             : part.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2});
}

FlatLayout::Buffers FlatLayout::zeros() const {
  Buffers buffers;
  if (!parameters_.empty()) buffers.trained = at::zeros({weight_size_}, options_);
  if (!frozen_.empty()) buffers.frozen = at::zeros({frozen_size_}, options_);
  return buffers;
}

// A leaf has a version counter of its own, which what happens to the buffer does not move: no pass holds a
// version that is changed, and the weights that `latest` changes under its passes are meant to change silently.
model::Weights FlatLayout::leaves(const Buffers& buffers) const {
  model::Weights weights;
  for (const std::size_t size : layer_sizes_) weights.layers.emplace_back(size);
  const auto refer = [&](const std::vector<Parameter>& parameters, const at::Tensor& buffer, bool trained) {
    for (const Parameter& parameter : parameters) {
      const at::Tensor leaf =
          view(buffer, parameter, parameter.offset()).variable_data().requires_grad_(trained);
      for (const Use& use : parameter.uses) weights.layers[use.layer][use.index] = leaf;
    }
  };
  refer(parameters_, buffers.trained, true);
  refer(frozen_, buffers.frozen, false);
  return weights;
}

}  // namespace pp::run
