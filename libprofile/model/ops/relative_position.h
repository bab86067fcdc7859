// The learned bias of attention scores by relative position (Raffel et al., Exploring the limits of transfer
// learning with a unified text-to-text transformer, 2020, sec. 2.1). The table of biases is an ordinary tensor
// that layers hand on, so that all attention layers can use one without sharing parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pp::model::ops {

enum class Sight { both_sides, backward };

/// Bucket of a key `distance` positions behind the query (negative: in front of it). Near distances have
/// buckets of their own, farther ones share them on a logarithmic scale, those from `max_distance` on the last.
/// With sight to both sides, the first half is for keys at or in front of the query.
std::int64_t position_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             Sight sight);

/// Table [n, buckets, heads] -> bias of the scores [n, heads, length, length] (query, key).
at::Tensor position_bias(const at::Tensor& table, std::int64_t length, std::int64_t max_distance, Sight sight);

}  // namespace pp::model::ops
