#include "libprofile/estimate/device_spec.h"

#include <algorithm>

#include "libprofile/core/error.h"

namespace pp::profile {

const TypeRates& rates_of(const DeviceSpec& device, const RunType& dtype) {
  const auto found = std::ranges::find(device.types, dtype, &TypeRates::dtype);
  if (found != device.types.end()) return *found;
  std::string known;
  for (const TypeRates& rates : device.types)
    known.append(known.empty() ? "" : ", ").append(name_of(rates.dtype));
  throw Error(ErrorKind::usage, "device " + device.name + " has no rates for " + std::string(name_of(dtype)) +
                                    ", only for " + known + "; use --dtype, or add the type to its file");
}

namespace {

double traffic_of(WorkKind kind, const Traffic& traffic) {
  switch (kind) {
    case WorkKind::product: return 1;
    case WorkKind::attention: return traffic.attention;
    case WorkKind::elements: return traffic.elements;
    case WorkKind::loss: return traffic.loss;
  }
  return 1;
}

/// Rate of FlashAttention's first generation over the second's, forward and backward on an A100 (Dao,
/// FlashAttention-2, 2023, fig. 4).
constexpr double kPortableAttention = 0.57;

double product_rate(const Work& work, const DeviceSpec& device, const TypeRates& rates,
                    AttentionKernel kernel) {
  if (work.kind != WorkKind::attention)
    return rates.product_flops_per_s * rates.efficiency * (work.aligned ? 1 : rates.unaligned_efficiency);
  const double portable =
      kernel == AttentionKernel::portable_kernel ? kPortableAttention * device.portable_products : 1;
  return rates.product_flops_per_s * rates.attention_efficiency.value_or(rates.efficiency) * portable;
}

}  // namespace

Seconds time_of(const Work& work, const DeviceSpec& device, const TypeRates& rates,
                const TrainerSpec& trainer) {
  double compute = work.vector / rates.vector_flops_per_s;
  if (work.products > 0) {
    const double small = std::max(1, work.product_calls) * rates.half_flops;
    compute += (work.products + small) / product_rate(work, device, rates, trainer.attention);
  }
  const double bytes = work.bytes * traffic_of(work.kind, trainer.traffic);
  const double cached = std::min(bytes, static_cast<double>(device.cache.value) * std::max(1, work.kernels));
  double memory = (bytes - cached) / (device.memory_bandwidth.value * device.memory_efficiency);
  if (cached > 0) memory += cached / device.cache_bandwidth.value;
  return work.kernels * device.kernel_overhead +
         Seconds(std::max(compute, memory) + (1 - device.overlap) * std::min(compute, memory));
}

Recipe recipe_of(const TrainerSpec& trainer, const RunType& dtype) {
  if (!dtype.products) return {};
  const auto found = std::ranges::find(trainer.recipes, *dtype.products, &Recipe::products);
  if (found != trainer.recipes.end()) return *found;
  throw Error(ErrorKind::usage, "trainer " + (trainer.name.empty() ? "(none)" : trainer.name) +
                                    " has no recipe for " + std::string(name_of(dtype)) +
                                    "; use --trainer nemo, --dtype bfloat16, or add recipes to its file");
}

}  // namespace pp::profile
