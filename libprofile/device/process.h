// What a measuring or training process and its threads set up once, and what a process says about itself and
// its machine. Torch-free.
#pragma once

#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"
#include "libprofile/device/device_set.h"

namespace pp::profile {

/// Process-wide settings of whoever measures or trains: malloc thresholds, the saved-tensor meter. Call once,
/// before any tensor exists.
void prepare_process();

/// What this process may use of its machine.
MachineDevices machine_devices();

/// Which devices of this kind the process sees: core numbers, or the GPUs' own identities. Two processes of one
/// machine that say the same see the same ones.
std::string seen_devices(DeviceKind kind);

/// The set as its profile will name it, without the memory: that of a GPU is known once it is in use. The
/// devices exist.
ProfiledDevice described(const DeviceSet& devices);

/// CPU model name, core count, LibTorch version, load average: the context of a measured document.
Context measurement_context();

/// From now on what LibTorch warns of on this thread is said once in the life of the process, on stderr:
/// some of its operations repeat it at each call.
void warn_once();

/// First line of every thread that runs segments: warn_once(), at most `threads` threads inside one operation,
/// gradients recorded, and backward in this thread. (LibTorch would run backward on a CUDA device in one thread
/// that all workers share.) `threads` also holds for threads started later from this one. The first call of a
/// process also calls oneMKL's vector functions, whose first calls must not run together (process.cpp).
void enter_worker_thread(int threads);

}  // namespace pp::profile
