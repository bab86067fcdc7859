// cuda_devices.h and cuda_device.h by the module that is loaded at the first call.
#include "libprofile/device/cuda_module.h"
#include "libprofile/device/memory_books.h"
#include "libprofile/device/module.h"

namespace pp::profile {
namespace {

void book_made(std::uintptr_t address, std::int64_t bytes) { detail::foreign_blocks().made(address, bytes); }
void book_freed(std::uintptr_t address) { detail::foreign_blocks().freed(address); }

const CudaModule& load() {
  static constexpr BlockBooks kBooks{.made = book_made, .freed = book_freed};
  load_cuda_libraries();
  const auto enter = reinterpret_cast<decltype(&pp_cuda_module)>(module_symbol("pp-cuda.so", "pp_cuda_module"));
  return *enter(&kBooks);
}

const CudaModule& cuda() {
  static const CudaModule& module = load();
  return module;
}

}  // namespace

int cuda_device_count() { return cuda().device_count(); }
std::string cuda_device_name(int index) { return cuda().device_name(index); }
Bytes cuda_device_memory(int index) { return cuda().device_memory(index); }
AllocatorPeak cuda_allocator_peak(int index) { return cuda().allocator_peak(index); }
bool cuda_peer_access(int from, int to) { return cuda().peer_access(from, to); }

void open_cuda_devices(std::span<const int> indices) { cuda().open_devices(indices); }
void enter_cuda_device(int index) { cuda().enter_device(index); }
void take_cuda_workspace() { cuda().take_workspace(); }
std::string cuda_identity(int index) { return cuda().identity(index); }
at::Generator cuda_generator(int index) { return cuda().generator(index); }
std::unique_ptr<Timer> make_event_timer() { return cuda().make_timer(); }
std::unique_ptr<DeviceEvent> make_cuda_event(Timing timing) { return cuda().make_event(timing); }
std::unique_ptr<Recording> make_cuda_recording() { return cuda().make_recording(); }
std::unique_ptr<Arrivals> make_cuda_arrivals(int index) { return cuda().make_arrivals(index); }
std::function<void()> cuda_reference() { return cuda().reference(); }
void wait_for_cuda(int index) { cuda().wait_for(index); }
void keep_for_this_stream(const c10::Storage& block) { cuda().keep_for_stream(block); }
at::Tensor copy_between_devices(const at::Tensor& tensor, int index) {
  return cuda().copy_between(tensor, index);
}

}  // namespace pp::profile
