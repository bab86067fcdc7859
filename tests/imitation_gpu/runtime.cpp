// The CUDA runtime's functions that LibTorch calls, in place of libcudart's: device memory comes from malloc,
// work is done when it is handed over, streams and events are names with a clock. What is missing here is
// answered by the real runtime, which finds no driver.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/imitation_gpu/graphs.h"
#include "tests/imitation_gpu/imitation.h"

namespace pp::test::gpu {
namespace {

constexpr std::size_t kDeviceMemory = std::size_t{8} << 30;

struct Event {
  bool timing = true;
  std::optional<std::chrono::steady_clock::time_point> recorded = {};
  VectorClock clock = {};
};

/// Lives as long as the process: LibTorch frees memory from destructors of its own.
class Machine {
 public:
  static Machine& get() {
    static auto* machine = new Machine;
    return *machine;
  }

  int device_count() const { return devices_; }
  RaceDetector& races() { return races_; }

  void* allocate(int device, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kSegment = std::size_t{2} << 20;
    if (used_[device] + bytes > kDeviceMemory) return nullptr;
    void* memory = std::aligned_alloc(kSegment, (bytes + kSegment - 1) / kSegment * kSegment);
    if (memory == nullptr) return nullptr;
    std::memset(memory, 0xcd, std::min(bytes, 32 * kSegment));  // fresh memory is not zero
    used_[device] += bytes;
    blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device};
    return memory;
  }

  bool free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (block == blocks_.end()) return false;
    races_.forget({block->first, block->second.bytes});
    used_[block->second.device] -= block->second.bytes;
    blocks_.erase(block);
    std::free(memory);
    return true;
  }

  /// The device whose memory this is.
  std::optional<int> device_of(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return std::nullopt;
    --block;
    if (address >= block->first + block->second.bytes) return std::nullopt;
    return block->second.device;
  }

  std::size_t free_memory(int device) {
    const std::lock_guard lock(mutex_);
    return kDeviceMemory - used_[device];
  }

  cudaStream_t make_stream(int device) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(device);
    return reinterpret_cast<cudaStream_t>(&streams_.back());
  }

  void host_waits_for_device(int device) {
    const std::lock_guard lock(mutex_);
    for (const int& stream : streams_) {
      if (stream == device) races_.host_waits_for(reinterpret_cast<Stream>(&stream));
    }
    races_.host_waits_for(default_stream(device));
  }

  /// No address of a stream that was made.
  static Stream default_stream(int device) { return static_cast<Stream>(device) + 1; }

 private:
  Machine() {
    if (const char* count = std::getenv("PP_IMITATION_DEVICES")) devices_ = std::clamp(std::atoi(count), 1, 8);
  }

  struct Block {
    std::size_t bytes = 0;
    int device = 0;
  };

  int devices_ = 1;
  RaceDetector races_;
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<int, std::size_t> used_;
  std::deque<int> streams_;  ///< device of each; a stream is the address of its place here
};

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

void launched(cudaStream_t stream, const std::string& operation, std::span<const Region> reads,
              std::span<const Region> writes) {
  const auto on_device = [](std::span<const Region> regions) {
    std::vector<Region> kept;
    std::ranges::copy_if(regions, std::back_inserter(kept),
                         [](const Region& r) { return Machine::get().device_of(r.begin).has_value(); });
    return kept;
  };
  Machine::get().races().stream_waits(name_of(stream), waited_for);
  Machine::get().races().launch(name_of(stream), operation, on_device(reads), on_device(writes));
}

void host_has_result(cudaStream_t stream) { Machine::get().races().host_waits_for(name_of(stream)); }

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
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->device = device.value_or(-1);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  do_or_capture(stream, [=](cudaStream_t in) {
    const Region from = region(source, bytes), to = region(target, bytes);
    launched(in, "memcpy", {&from, 1}, {&to, 1});
    std::memmove(target, source, bytes);
  });
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
  do_or_capture(stream, [=](cudaStream_t in) {
    const Region to = region(target, bytes);
    launched(in, "memset", {}, {&to, 1});
    std::memset(target, value, bytes);
  });
  return cudaSuccess;
}

// Streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = Machine::get().make_stream(current_device);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (is_capturing(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  host_has_result(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Machine::get().races().stream_waits(name_of(stream), event_of(event).clock);
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
  Machine::get().races().stream_waits(name_of(stream), waited_for);
  event_of(event).clock = Machine::get().races().record(name_of(stream));
  event_of(event).recorded = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  merge(waited_for, event_of(event).clock);
  return cudaSuccess;
}

/// LibTorch's allocator asks before it lets any thread use memory again.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine::get().races().host_waits(event_of(event).clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Event &first = event_of(from), &second = event_of(to);
  if (!first.timing || !second.timing || !first.recorded || !second.recorded)
    return fail(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(*second.recorded - *first.recorded).count();
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
