// The device on which a thread runs segments, CPU or CUDA behind the same few calls: profiler and runtime ask
// here and nowhere else what kind it is.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "libprofile/core/profile.h"
#include "libprofile/device/queued_work.h"
#include "libprofile/device/timer.h"

namespace pp::profile {

/// Where the tensors of a device live; `index` counts for CUDA only.
at::Device tensor_device(DeviceKind kind, int index);

/// Which one it is, whatever number it has in this process; empty for a CPU.
std::string device_identity(const at::Device& device);

/// On the main thread, before threads enter several of these devices; CPU devices need nothing. Throws
/// pp::Error (device) without the device.
void open_devices(std::span<const at::Device> devices);

/// First line of a thread that computes on this device and on no other: at most `threads` threads inside one
/// operation on the CPU, LibTorch's other settings (process.h), and with a CUDA device a stream of its own.
/// Throws pp::Error (device) without the device.
void enter_device(const at::Device& device, int threads);

/// Takes for the calling thread the device memory that libraries keep for a thread that computes: cuBLAS's
/// workspace. Like the driver's own memory it is charged to no account. Nothing on a CPU.
void take_library_memory(const at::Device& device);

/// A private generator whose draws stay on the device.
at::Generator make_generator(const at::Device& device, std::uint64_t seed);

/// Returns when the work of the calling thread on this device is done; at once on a CPU.
void wait_for(const at::Device& device);

/// The same values on `device`: `tensor` itself where it lives there already, else a copy that this thread's
/// work there comes after. What this thread hands to the tensor's device comes after whatever made it. Its last
/// handle may go at any time, also on another thread.
at::Tensor brought_to(const at::Device& device, at::Tensor tensor);

/// The same by `arrivals` on this thread's device, where `tensor` does not live.
at::Tensor brought_to(Arrivals& arrivals, const at::Tensor& tensor);

/// The values in the host's memory, dense in `format`, when it returns: `tensor` itself, or a copy in pinned
/// memory, which a device writes at the full rate of its bus.
at::Tensor brought_to_host(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous);
/// Unset memory of the host; `pinned`: for what goes on to a CUDA device.
at::Tensor host_room(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format, bool pinned);

/// What measuring on a device takes, for the thread that entered it.
struct DeviceProbes {
  std::unique_ptr<Timer> timer;
  std::function<void()> reference;  ///< a fixed piece of work: its time tells what the device is worth
};
/// `clock` times CPU devices and must outlive them.
DeviceProbes make_probes(const at::Device& device, const Clock& clock);

}  // namespace pp::profile
