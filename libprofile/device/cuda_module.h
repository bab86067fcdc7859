// Where the CUDA half begins: LibTorch's CUDA libraries, cuda_device.cpp and cuda_devices.cpp are a module
// (lib/pp/pp-cuda.so) that is loaded when a CUDA device is asked for. Internal to delayed_cuda.cpp and the
// module.
#pragma once

#include <cstdint>

#include "libprofile/device/cuda_device.h"
#include "libprofile/device/cuda_devices.h"

namespace pp::profile {

/// What the module reports to the program: blocks that LibTorch's allocator makes and frees.
struct BlockBooks {
  void (*made)(std::uintptr_t address, std::int64_t bytes);
  void (*freed)(std::uintptr_t address);
};

struct CudaModule {
  decltype(&cuda_device_count) device_count;
  decltype(&cuda_device_name) device_name;
  decltype(&cuda_device_memory) device_memory;
  decltype(&cuda_allocator_peak) allocator_peak;
  decltype(&cuda_peer_access) peer_access;
  decltype(&open_cuda_devices) open_devices;
  decltype(&enter_cuda_device) enter_device;
  decltype(&take_cuda_workspace) take_workspace;
  decltype(&cuda_identity) identity;
  decltype(&cuda_generator) generator;
  decltype(&make_event_timer) make_timer;
  decltype(&make_cuda_event) make_event;
  decltype(&make_cuda_recording) make_recording;
  decltype(&make_cuda_arrivals) make_arrivals;
  decltype(&cuda_reference) reference;
  decltype(&wait_for_cuda) wait_for;
  decltype(&keep_for_this_stream) keep_for_stream;
  decltype(&copy_between_devices) copy_between;
};

/// Where the module's allocations are reported to.
const BlockBooks& block_books();

}  // namespace pp::profile

/// The one symbol of the module that is looked up by its name.
extern "C" const pp::profile::CudaModule* pp_cuda_module(const pp::profile::BlockBooks* books);
