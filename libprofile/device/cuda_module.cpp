#include "libprofile/device/cuda_module.h"

namespace pp::profile {
namespace {

const BlockBooks* told = nullptr;

constexpr CudaModule kModule{
    .device_count = cuda_device_count,
    .device_name = cuda_device_name,
    .device_memory = cuda_device_memory,
    .allocator_peak = cuda_allocator_peak,
    .peer_access = cuda_peer_access,
    .open_devices = open_cuda_devices,
    .enter_device = enter_cuda_device,
    .take_workspace = take_cuda_workspace,
    .identity = cuda_identity,
    .generator = cuda_generator,
    .make_timer = make_event_timer,
    .make_event = make_cuda_event,
    .make_recording = make_cuda_recording,
    .make_arrivals = make_cuda_arrivals,
    .reference = cuda_reference,
    .wait_for = wait_for_cuda,
    .keep_for_stream = keep_for_this_stream,
    .copy_between = copy_between_devices,
};

}  // namespace

const BlockBooks& block_books() { return *told; }

}  // namespace pp::profile

const pp::profile::CudaModule* pp_cuda_module(const pp::profile::BlockBooks* books) {
  pp::profile::told = books;
  return &pp::profile::kModule;
}
