#include "libprofile/model/ops/relative_position.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

std::int64_t position_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             Sight sight) {
  std::int64_t first = 0;
  std::int64_t apart = std::max<std::int64_t>(-distance, 0);
  if (sight == Sight::both_sides) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    apart = std::abs(distance);
  }
  const std::int64_t exact = buckets / 2;
  if (apart < exact) return first + apart;
  const double near = static_cast<double>(exact);
  const double share =
      std::log2(static_cast<double>(apart) / near) / std::log2(static_cast<double>(max_distance) / near);
  const auto shared = static_cast<std::int64_t>(share * static_cast<double>(buckets - exact));
  return first + std::min(exact + shared, buckets - 1);
}

at::Tensor position_bias(const at::Tensor& table, std::int64_t length, std::int64_t max_distance, Sight sight) {
  const at::Tensor bucket_of = at::empty({2 * length - 1}, at::kLong);  // of key - query from 1 - length on
  auto* next = bucket_of.mutable_data_ptr<std::int64_t>();
  for (std::int64_t distance = 1 - length; distance < length; ++distance)
    *next++ = position_bucket(distance, table.size(1), max_distance, sight);
  const at::Tensor by_distance = table.transpose(1, 2).index_select(2, bucket_of.to(table.device()));
  return by_distance.unfold(2, length, 1).flip(2);  // the first query's row is the last window
}

namespace {

// Any [n, ...] -> [n, buckets, heads], the weight for every sample
Forward relative_position_bias(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {weights[0].unsqueeze(0).expand({inputs[0].size(0), -1, -1})};
  };
}

constexpr std::array kRelativePositionRows{
    Row{"relative_position_bias", relative_position_bias, initialise_normal},
};

}  // namespace

std::span<const Row> relative_position_rows() { return kRelativePositionRows; }

}  // namespace pp::model::ops
