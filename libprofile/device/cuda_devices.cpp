#include "libprofile/device/cuda_devices.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace pp::profile {

int cuda_device_count() { return c10::cuda::device_count(); }

std::string cuda_device_name(int index) {
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
}

Bytes cuda_device_memory(int index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return Bytes(static_cast<std::int64_t>(free));
}

AllocatorPeak cuda_allocator_peak(int index) {
  if (c10::cuda::CUDACachingAllocator::get() == nullptr ||
      !c10::cuda::CUDACachingAllocator::get()->initialized())
    return {};
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {Bytes(stats.allocated_bytes[kAll].peak), Bytes(stats.reserved_bytes[kAll].peak)};
}

bool cuda_peer_access(int from, int to) {
  return at::cuda::get_p2p_access(static_cast<c10::DeviceIndex>(from), static_cast<c10::DeviceIndex>(to));
}

}  // namespace pp::profile
