// The CUDA runtime's functions that LibTorch calls, in place of libcudart's: device memory comes from malloc,
// streams and events are names with a clock, and work is done in an order of late_streams.h. What is missing
// here is answered by the real runtime, which finds no driver.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/lab/imitation_gpu/graphs.h"
#include "tests/lab/imitation_gpu/imitation.h"
#include "tests/lab/imitation_gpu/machine.h"

namespace pp::test::gpu {
namespace {

struct Event {
  bool timing = true;
  std::shared_ptr<Mark> mark = {};  ///< null: never recorded
  VectorClock clock = {};
  int asked = 0;  ///< how often the host has found it not reached
};

/// So often a host that polls an event finds it not reached.
constexpr int kPatience = 100;

thread_local int current_device = 0;
/// What the calling thread has waited for by an event: it counts for its own work alone. Other threads go on
/// without it, unless it has told them, which nobody here sees.
thread_local VectorClock waited_for;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t fail(cudaError_t error) { return last_error = error; }

Stream name_of(cudaStream_t stream) {
  return stream == nullptr ? Machine::default_stream(current_device) : reinterpret_cast<Stream>(stream);
}

Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

bool is_pageable(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return !Machine::get().device_of(address) && !Machine::get().is_pinned(address);
}

Region region(const void* begin, std::size_t bytes) { return {reinterpret_cast<std::uintptr_t>(begin), bytes}; }

/// At the end of the process: what was looked at. Races end it with another exit code, so that no test misses
/// them.
struct Verdict {
  ~Verdict() {
    const RaceDetector& detector = Machine::get().races();
    for (const std::string& race : detector.races())
      std::fprintf(stderr, "imitation GPU: RACE: %s\n", race.c_str());
    std::fprintf(stderr, "imitation GPU: %ld accesses, %zu races\n", detector.accesses(),
                 detector.races().size());
    if (!detector.races().empty()) std::_Exit(70);
  }
} const verdict;

}  // namespace

void hand_over(cudaStream_t stream, const Work& work) {
  const auto on_device = [](const std::vector<Region>& regions) {
    std::vector<Region> kept;
    std::ranges::copy_if(regions, std::back_inserter(kept),
                         [](const Region& r) { return Machine::get().device_of(r.begin).has_value(); });
    return kept;
  };
  const Stream in = name_of(stream);
  Machine& machine = Machine::get();
  machine.follow_default_stream(in);
  machine.races().stream_waits(in, waited_for);
  machine.races().launch(in, work.operation, on_device(work.reads), on_device(work.writes));
  machine.work().hand_over(in, work.run);
}

bool works_late() { return Machine::get().work().order() != Order::at_once; }

void host_has_result(cudaStream_t stream) { Machine::get().host_waits_for(name_of(stream)); }

}  // namespace pp::test::gpu

using namespace pp::test::gpu;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier): CUDA's names
extern "C" {

// Devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::get().device_count();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().device_count()) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Imitation GPU %d", device);
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->totalGlobalMem = kDeviceMemory;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->multiProcessorCount = 132;
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  if (forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  Machine::get().host_waits_for_device(current_device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaPeekAtLastError() { return last_error; }

// Memory

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  *memory = Machine::get().allocate(current_device, bytes);
  return *memory == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  Machine::get().host_waits_for_device(current_device);
  return Machine::get().free(memory) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = Machine::get().free_memory(current_device);
  *total = kDeviceMemory;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::optional<int> device = Machine::get().device_of(reinterpret_cast<std::uintptr_t>(memory));
  *attributes = {};
  const bool pinned = Machine::get().is_pinned(reinterpret_cast<std::uintptr_t>(memory));
  attributes->type = device ? cudaMemoryTypeDevice : pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->device = device.value_or(-1);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = Machine::get().allocate_pinned(bytes);
  return *memory == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  Machine::get().free_pinned(memory);
  return cudaSuccess;
}

/// The host's pageable memory is read at once, and has been written when the call returns.
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Work work{"memcpy", {region(source, bytes)}, {region(target, bytes)}, {}};
  if (works_late() && !is_capturing(stream) && is_pageable(source)) {
    const auto* first = static_cast<const char*>(source);
    const auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
    work.run = [=] { std::memcpy(target, staged->data(), bytes); };
  } else {
    work.run = [=] { std::memmove(target, source, bytes); };
  }
  hand_over_or_capture(stream, std::move(work));
  if (is_pageable(target) && !is_capturing(stream)) host_has_result(stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, std::size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, nullptr);
  host_has_result(nullptr);
  return error;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  hand_over_or_capture(stream,
                       {"memset", {}, {region(target, bytes)}, [=] { std::memset(target, value, bytes); }});
  return cudaSuccess;
}

// Streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  *stream = Machine::get().make_stream(current_device, (flags & cudaStreamNonBlocking) == 0);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

/// What it has been handed is still done.
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (is_capturing(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  host_has_result(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Event& of = event_of(event);
  if (of.mark) Machine::get().work().wait(name_of(stream), of.mark);
  Machine::get().races().stream_waits(name_of(stream), of.clock);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(new Event{.timing = (flags & cudaEventDisableTiming) == 0});
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Stream in = name_of(stream);
  Machine& machine = Machine::get();
  machine.follow_default_stream(in);
  machine.races().stream_waits(in, waited_for);
  event_of(event).clock = machine.races().record(in);
  event_of(event).mark = machine.work().record(in);
  event_of(event).asked = 0;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event_of(event).mark) Machine::get().work().finish(*event_of(event).mark);
  merge(waited_for, event_of(event).clock);
  return cudaSuccess;
}

/// LibTorch's allocator asks before it lets any thread use memory again.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Event& of = event_of(event);
  LateStreams& work = Machine::get().work();
  if (of.mark && !work.is_reached(*of.mark)) {
    if (++of.asked < kPatience) return fail(cudaErrorNotReady);
    work.finish(*of.mark);
  }
  Machine::get().races().host_waits(of.clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Event &first = event_of(from), &second = event_of(to);
  if (!first.timing || !second.timing || !first.mark || !second.mark)
    return fail(cudaErrorInvalidResourceHandle);
  const LateStreams& work = Machine::get().work();
  if (!work.is_reached(*first.mark) || !work.is_reached(*second.mark)) return fail(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(second.mark->when - first.mark->when).count();
  return cudaSuccess;
}

// Kernels: none runs; kernels.cpp must have replaced the operation.

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return fail(cudaErrorNotSupported);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return fail(cudaErrorNotSupported);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
