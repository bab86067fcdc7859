// Threads that do the same work at the same time, one per device, so that shared caches and memory bandwidth
// are under the load that a pipeline puts on them. Torch-free.
#pragma once

#include <barrier>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pp::profile {

class DeviceGang {
 public:
  /// Starts `devices` threads; each runs `enter(device)` once: pinning, thread settings. Throws what the first
  /// failing `enter` throws.
  DeviceGang(int devices, const std::function<void(int device)>& enter);
  ~DeviceGang();
  DeviceGang(const DeviceGang&) = delete;
  DeviceGang& operator=(const DeviceGang&) = delete;

  /// Calls `work(device)` on every thread, started together by a barrier, and returns when all are done. What
  /// they throw is kept until then; the lowest device's is rethrown here and the threads stay usable. One
  /// caller at a time.
  void run(const std::function<void(int device)>& work);

 private:
  void serve(int device);
  void stop();

  std::mutex mutex_;
  std::condition_variable wake_, all_done_;
  const std::function<void(int)>* work_ = nullptr;  ///< of run number `run_`
  std::uint64_t run_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::vector<std::exception_ptr> errors_;  ///< per device, of the last run
  std::barrier<> start_;
  std::vector<std::jthread> threads_;
};

}  // namespace pp::profile
