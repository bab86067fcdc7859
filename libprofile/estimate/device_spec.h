// What is known of a device without having it (document pp.device): rates by type, memory, and how far an
// operation gets by its kind and size. What software makes of it stands in core/trainer.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/fields.h"
#include "libprofile/core/link.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/trainer.h"
#include "libprofile/core/units.h"

namespace pp::profile {

/// Rates for one floating type.
struct TypeRates {
  RunType dtype = {};
  double product_flops_per_s = 0;  ///< peak of products of matrices
  double vector_flops_per_s = 0;   ///< of everything else
  double efficiency = 1;           ///< the share of the peak that large products reach
  double half_flops = 0;           ///< FLOPs of a product that reaches half of that share
  std::optional<double> attention_efficiency = std::nullopt;  ///< in place of `efficiency`, of attention
  /// Of the rate of other products, what those reach whose rows are not multiples of 16 bytes.
  double unaligned_efficiency = 1;
  bool operator==(const TypeRates&) const = default;
};

struct DeviceSpec {
  std::string name;
  std::string source;  ///< where the figures come from
  DeviceKind kind = DeviceKind::cuda;
  Bytes memory;
  Bytes context;               ///< of it, what the driver and libraries take before the first tensor
  double memory_rounding = 1;  ///< bytes that the allocator takes per byte of tensors, at least 1
  /// Share of the rate of products that kernels without the device's newest instructions reach.
  double portable_products = 1;
  BytesPerSecond memory_bandwidth;
  double memory_efficiency = 1;    ///< the share of it that kernels reach
  Bytes cache;                     ///< the first bytes that a kernel moves, at the cache's rate
  BytesPerSecond cache_bandwidth;  ///< reached; not read without a cache
  double overlap = 1;              ///< of computing and moving, the share of the shorter that the longer hides
  Seconds kernel_overhead{};       ///< of each, whatever its size
  std::optional<Link> tensor_link = std::nullopt;  ///< bandwidth and latency between members of a tensor group
  std::vector<TypeRates> types;                    ///< each type once
  bool operator==(const DeviceSpec&) const = default;
};

/// Throws pp::Error (usage), which names the types there are.
const TypeRates& rates_of(const DeviceSpec& device, const RunType& dtype);

enum class WorkKind { product, attention, elements, loss };

/// What some kernels do, one after the other.
struct Work {
  WorkKind kind = WorkKind::elements;
  double products = 0;  ///< FLOPs of products of matrices
  double vector = 0;    ///< all others
  double bytes = 0;     ///< read and written
  int kernels = 0;
  int product_calls = 0;  ///< how many products `products` is the sum of; 0 counts as one
  bool aligned = true;    ///< all matrices have rows of multiples of 16 bytes
  bool narrow = false;    ///< products are of the run's narrow type
  bool full = false;      ///< products are of float32
  Seconds host{};         ///< of the host, besides the launches
};

/// A roofline with latency: kernels * overhead + max(FLOPs, bytes), each at its rate, the first bytes of every
/// kernel at that of the cache, and what does not overlap; a product of w FLOPs reaches efficiency * w / (w +
/// half_flops) of the peak, so n of them take (products + n * half_flops) / (efficiency * peak) together.
Seconds time_of(const Work& work, const DeviceSpec& device, const TypeRates& rates,
                const TrainerSpec& trainer = {});

Keys device_spec_keys();
/// Throws pp::Error (data): key, value, limit.
DeviceSpec device_spec_from_json(const Json& json);
Json to_json(const DeviceSpec& device);
DeviceSpec parse_device_spec(std::string_view text);

/// The trainer's for products of the run's type; nothing where they are of no narrow one. Throws pp::Error
/// (usage) where it has none.
Recipe recipe_of(const TrainerSpec& trainer, const RunType& dtype);

}  // namespace pp::profile
