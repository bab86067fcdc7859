#include "libprofile/device/compute_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <set>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/cuda_device.h"
#include "libprofile/device/hand_over.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "libprofile/device/queued_work.h"
#include "libprofile/device/reference_kernel.h"

namespace pp::profile {

at::Device tensor_device(DeviceKind kind, int index) {
  return kind == DeviceKind::cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index))
                                  : at::Device(at::kCPU);
}

std::string device_identity(const at::Device& device) {
  return device.is_cuda() ? cuda_identity(device.index()) : "";
}

void open_devices(std::span<const at::Device> devices) {
  std::set<int> cuda;
  for (const at::Device& device : devices) {
    if (device.is_cuda()) cuda.insert(device.index());
  }
  if (!cuda.empty()) open_cuda_devices(std::vector<int>(cuda.begin(), cuda.end()));
}

void enter_device(const at::Device& device, int threads) {
  enter_worker_thread(threads);
  if (device.is_cuda()) enter_cuda_device(device.index());
}

void take_library_memory(const at::Device& device) {
  if (!device.is_cuda()) return;
  const ChargeMemory nobody(MemoryAccount(), DeviceKind::cuda);
  take_cuda_workspace();
}

at::Generator make_generator(const at::Device& device, std::uint64_t seed) {
  if (!device.is_cuda()) return at::make_generator<at::CPUGeneratorImpl>(seed);
  at::Generator generator = cuda_generator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

void wait_for(const at::Device& device) {
  if (device.is_cuda()) wait_for_cuda(device.index());
}

at::Tensor brought_to(const at::Device& device, at::Tensor tensor) {
  if (tensor.is_cuda()) keep_for_stream(tensor);  // a copy runs on its source's device
  if (tensor.is_cuda() && device.is_cuda() && tensor.device() != device)
    return copy_between_devices(tensor, device.index());
  // From the host, too: pinned memory is not used again before the copy is done, other memory is read at once.
  return tensor.device() == device ? tensor : tensor.to(device, /*non_blocking=*/device.is_cuda());
}

at::Tensor brought_to(Arrivals& arrivals, const at::Tensor& tensor) {
  if (tensor.is_cuda()) keep_for_stream(tensor);
  return arrivals.copy(tensor);
}

at::Tensor brought_to_host(const at::Tensor& tensor, at::MemoryFormat format) {
  if (tensor.is_cpu()) return tensor.contiguous(format);
  return host_room(tensor.sizes(), tensor.scalar_type(), format, /*pinned=*/true).copy_(tensor);
}

at::Tensor host_room(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format, bool pinned) {
  return at::empty(sizes, at::TensorOptions(type).pinned_memory(pinned), format);
}

std::unique_ptr<DeviceEvent> make_event(const at::Device& device, Timing timing) {
  return device.is_cuda() ? make_cuda_event(timing) : nullptr;
}

std::unique_ptr<Arrivals> make_arrivals(const at::Device& device) {
  if (device.is_cuda()) return make_cuda_arrivals(device.index());
  throw Error(ErrorKind::internal, "tensors arrive on CUDA devices alone");
}

std::unique_ptr<Recording> make_recording(const c10::Device& device) {
  if (device.is_cuda()) return make_cuda_recording();
  throw Error(ErrorKind::internal, "work is recorded on CUDA devices alone");
}

DeviceProbes make_probes(const at::Device& device, const Clock& clock) {
  if (device.is_cuda()) return {make_event_timer(), cuda_reference()};
  return {std::make_unique<ClockTimer>(clock), run_reference};
}

}  // namespace pp::profile
