#include "libprofile/estimate/device_spec.h"

#include <algorithm>

#include "libprofile/core/error.h"

namespace pp::profile {

const TypeRates& rates_of(const DeviceSpec& device, DType dtype) {
  const auto found = std::ranges::find(device.types, dtype, &TypeRates::dtype);
  if (found != device.types.end()) return *found;
  std::string known;
  for (const TypeRates& rates : device.types)
    known.append(known.empty() ? "" : ", ").append(name_of(rates.dtype));
  throw Error(ErrorKind::usage, "device " + device.name + " has no rates for " + std::string(name_of(dtype)) +
                                    ", only for " + known + "; use --dtype, or add the type to its file");
}

Work& Work::operator+=(const Work& other) {
  products += other.products;
  vector += other.vector;
  bytes += other.bytes;
  kernels += other.kernels;
  product_calls += other.product_calls;
  return *this;
}

Seconds time_of(const Work& work, const DeviceSpec& device, const TypeRates& rates) {
  double compute = work.vector / rates.vector_flops_per_s;
  if (work.products > 0) {
    const double small = std::max(1, work.product_calls) * rates.half_flops;
    compute += (work.products + small) / (rates.product_flops_per_s * rates.efficiency);
  }
  const double cached =
      std::min(work.bytes, static_cast<double>(device.cache.value) * std::max(1, work.kernels));
  double memory = (work.bytes - cached) / (device.memory_bandwidth.value * device.memory_efficiency);
  if (cached > 0) memory += cached / device.cache_bandwidth.value;
  return work.kernels * device.kernel_overhead +
         Seconds(std::max(compute, memory) + (1 - device.overlap) * std::min(compute, memory));
}

}  // namespace pp::profile
