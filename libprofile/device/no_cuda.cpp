// In place of delayed_cuda.cpp where LibTorch has no CUDA, or PP_CUDA is OFF.
#include "libprofile/core/error.h"
#include "libprofile/device/build.h"
#include "libprofile/device/cuda_device.h"
#include "libprofile/device/cuda_devices.h"

namespace pp::profile {
namespace {

/// Nobody gets here: there is no device to ask for.
[[noreturn]] void fail() { throw Error(ErrorKind::device, why_no_cuda() + "; use a CPU device"); }

}  // namespace

int cuda_device_count() { return 0; }
std::string cuda_device_name(int /*index*/) { fail(); }
Bytes cuda_device_memory(int /*index*/) { fail(); }
AllocatorPeak cuda_allocator_peak(int /*index*/) { fail(); }
bool cuda_peer_access(int /*from*/, int /*to*/) { fail(); }

void open_cuda_devices(std::span<const int> /*indices*/) { fail(); }
void enter_cuda_device(int /*index*/) { fail(); }
void take_cuda_workspace() { fail(); }
std::string cuda_identity(int /*index*/) { fail(); }
at::Generator cuda_generator(int /*index*/) { fail(); }
std::unique_ptr<Timer> make_event_timer() { fail(); }
std::unique_ptr<DeviceEvent> make_cuda_event(Timing /*timing*/) { fail(); }
std::unique_ptr<Recording> make_cuda_recording() { fail(); }
std::unique_ptr<Arrivals> make_cuda_arrivals(int /*index*/) { fail(); }
std::function<void()> cuda_reference() { fail(); }
void wait_for_cuda(int /*index*/) { fail(); }
void keep_for_this_stream(const c10::Storage& /*block*/) { fail(); }
at::Tensor copy_between_devices(const at::Tensor& /*tensor*/, int /*index*/) { fail(); }

}  // namespace pp::profile
