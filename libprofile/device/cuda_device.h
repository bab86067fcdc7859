// What computing on a CUDA device takes beyond LibTorch's usual calls: in the module that delayed_cuda.cpp
// loads, or no_cuda.cpp in a build without, whose functions throw pp::Error (device). Callers go through
// compute_device.h.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "libprofile/device/queued_work.h"
#include "libprofile/device/timer.h"

namespace pp::profile {

/// On the main thread, before several threads enter devices: starts each device's libraries and looks up which
/// pairs copy directly, because LibTorch fills these tables without a lock.
void open_cuda_devices(std::span<const int> indices);

/// From now on the calling thread works on device `index`, all its kernels in one stream of its own (of 32 that
/// LibTorch hands out in turn). The first call of the process makes LibTorch's allocator report to the memory
/// meter, lets LibTorch and cuDNN use deterministic algorithms where they have them, so that the same program
/// gives the same bits, and turns TF32 off: float32 products keep their 24 bits.
void enter_cuda_device(int index);

/// Products by cuBLAS take a workspace for each stream, 8 MiB and on Hopper 32, which stays. After this call
/// the calling thread's stream has it.
void take_cuda_workspace();

/// The identity of the device's chip, or of the share of it, in hexadecimal.
std::string cuda_identity(int index);

/// A generator of its own on device `index`.
at::Generator cuda_generator(int index);

/// Marks are events in the calling thread's stream: a lap is what the device was busy with, and idle in
/// between, whatever the host did meanwhile. Used by the thread that made it, after enter_cuda_device().
std::unique_ptr<Timer> make_event_timer();

/// For events of the device that the thread which records them has entered.
std::unique_ptr<DeviceEvent> make_cuda_event(Timing timing);

/// In the stream of the calling thread.
std::unique_ptr<Recording> make_cuda_recording();

/// A product of two matrices of 1024 x 1024 float32, about 2.1 GFLOP, in the calling thread's stream.
std::function<void()> cuda_reference();

/// To device `index`, which the calling thread has entered.
std::unique_ptr<Arrivals> make_cuda_arrivals(int index);

/// A copy of `tensor`, which lives on another CUDA device, on device `index`, in streams that the calling
/// thread has for copies alone: behind what this thread's stream on the tensor's device has been told to wait
/// for, and before what it hands to device `index` from now on. Its computations until now go on meanwhile.
at::Tensor copy_between_devices(const at::Tensor& tensor, int index);

/// Returns when the device has done all that the calling thread has handed to its stream on device `index`.
void wait_for_cuda(int index);

/// `block`, which LibTorch's allocator made for any stream, is used by the calling thread's current stream:
/// when it is freed, it is not used again before what this stream has been handed until then is done. So it is
/// with the room of an arrival; LibTorch ignores other storages than its own without a word.
void keep_for_this_stream(const c10::Storage& block);

}  // namespace pp::profile
