// What stands for the machine: its devices' memory, the host's pinned memory, streams, and the order of their
// work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/lab/imitation_gpu/imitation.h"
#include "tests/lab/imitation_gpu/late_streams.h"

namespace pp::test::gpu {

inline constexpr std::size_t kDeviceMemory = std::size_t{8} << 30;

inline Order order_wanted() {
  const char* name = std::getenv("PP_IMITATION_ORDER");
  const std::string_view order = name == nullptr ? "at_once" : name;
  if (order == "late") return Order::late;
  if (order == "last") return Order::last;
  if (order == "at_once") return Order::at_once;
  std::fprintf(stderr, "imitation GPU: PP_IMITATION_ORDER is none of at_once, late, last\n");
  std::_Exit(71);
}

/// Lives as long as the process: LibTorch frees memory from destructors of its own.
class Machine {
 public:
  static Machine& get() {
    static auto* machine = new Machine;
    return *machine;
  }

  int device_count() const { return devices_; }
  RaceDetector& races() { return races_; }
  LateStreams& work() { return work_; }

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

  void* allocate_pinned(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* memory = std::malloc(bytes);
    if (memory != nullptr) pinned_[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
    return memory;
  }

  void free_pinned(void* memory) {
    for (int device = 0; device < devices_; ++device) host_waits_for_device(device);
    const std::lock_guard lock(mutex_);
    pinned_.erase(reinterpret_cast<std::uintptr_t>(memory));
    std::free(memory);
  }

  bool is_pinned(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    auto block = pinned_.upper_bound(address);
    return block != pinned_.begin() && address < (--block)->first + block->second;
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

  cudaStream_t make_stream(int device, bool blocking) {
    const std::lock_guard lock(mutex_);
    streams_.push_back({device, blocking});
    return reinterpret_cast<cudaStream_t>(&streams_.back());
  }

  void host_waits_for(Stream stream) {
    work_.finish(stream);
    races_.host_waits_for(stream);
  }

  void host_waits_for_device(int device) {
    for (const Stream stream : streams_of(device)) host_waits_for(stream);
    host_waits_for(default_stream(device));
  }

  /// Work of the default stream comes after what the blocking streams of its device have been handed, and
  /// theirs after its.
  void follow_default_stream(Stream stream) {
    const std::lock_guard lock(mutex_);
    if (stream <= kMostDevices) {
      for (const StreamOf& other : streams_) {
        if (other.blocking && default_stream(other.device) == stream) follow(stream, name_of(other));
      }
      return;
    }
    const StreamOf& own = *reinterpret_cast<const StreamOf*>(stream);
    if (own.blocking) follow(stream, default_stream(own.device));
  }

  static constexpr int kMostDevices = 8;
  /// No address of a stream that was made.
  static Stream default_stream(int device) { return static_cast<Stream>(device) + 1; }

 private:
  Machine() {
    if (const char* count = std::getenv("PP_IMITATION_DEVICES"))
      devices_ = std::clamp(std::atoi(count), 1, kMostDevices);
  }

  struct Block {
    std::size_t bytes = 0;
    int device = 0;
  };

  struct StreamOf {
    int device = 0;
    bool blocking = false;  ///< keeps in step with the default stream
  };

  static Stream name_of(const StreamOf& stream) { return reinterpret_cast<Stream>(&stream); }

  void follow(Stream stream, Stream other) {
    work_.wait(stream, work_.record(other));
    races_.stream_waits(stream, races_.record(other));
  }

  std::vector<Stream> streams_of(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<Stream> names;
    for (const StreamOf& stream : streams_) {
      if (stream.device == device) names.push_back(name_of(stream));
    }
    return names;
  }

  int devices_ = 1;
  RaceDetector races_;
  LateStreams work_{order_wanted()};
  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> pinned_;  ///< the host's memory that copies do not stage
  std::map<std::uintptr_t, Block> blocks_;
  std::map<int, std::size_t> used_;
  std::deque<StreamOf> streams_;  ///< a stream is the address of its place here
};

}  // namespace pp::test::gpu
