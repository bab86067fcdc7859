#include "librun/stage/host_memory.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/StorageImpl.h>

#include <utility>

#include "libprofile/device/compute_device.h"

namespace pp::run {

at::Tensor room_on_host(const at::Tensor& tensor, const profile::MemoryAccount& host) {
  const profile::ChargeMemory charged(host);
  const auto options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda()).requires_grad(false);
  return at::empty_like(tensor, options, c10::MemoryFormat::Preserve);
}

at::Tensor copied_to_host(const at::Tensor& tensor, const profile::MemoryAccount& host) {
  return room_on_host(tensor, host).copy_(tensor.detach());
}

at::Tensor copied_to_device(const at::Tensor& tensor, const at::Device& device) {
  return device.is_cuda() ? profile::brought_to(device, tensor)
                          : at::empty_like(tensor, {}, c10::MemoryFormat::Preserve).copy_(tensor);
}

void set_memory(const at::Tensor& tensor, bool present) {
  if (!tensor.defined()) return;
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if ((storage.nbytes() > 0) == present) return;
  const std::size_t bytes = present ? tensor.nbytes() : 0;
  storage.set_data_ptr_noswap(present ? storage.allocator()->allocate(bytes)
                                      : c10::DataPtr(nullptr, storage.device()));
  storage.set_nbytes(bytes);
}

}  // namespace pp::run
