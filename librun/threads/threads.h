// Threads that are joined whatever happens, also when the system refuses the next one; how a plan's CPU
// devices are bound to the cores that this process may use; and computing in the background of threads that
// need the same cores, without a lower priority: a thread that has one is also slow to end, and a process
// ends with its last thread. Free of Torch.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/units.h"

namespace pp::run {

class Threads {
 public:
  using Body = std::function<void()>;
  /// Starts a thread; system() is std::thread.
  using Start = std::function<std::thread(Body)>;
  static Start system();

  explicit Threads(Start start = system()) : start_(std::move(start)) {}
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// `body` throws nothing. Throws pp::Error (run) when the system has no thread left; those that were started
  /// run on, so end what they wait for.
  void add(Body body);
  void join();
  /// The first thread that has not ended after `most`; none when all of them have, and are joined.
  std::optional<std::size_t> join_within(Seconds most);

 private:
  Start start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ended_;  ///< per thread
  std::vector<std::thread> threads_;
};

/// The cores of every device, in the plan's order, and what is doubtful about them.
struct CoreBinding {
  std::vector<std::vector<int>> cores;
  std::vector<int> threads;  ///< of an operation on the host, at least 1
  std::vector<std::string> warnings;
};

/// CPU devices that name their cores keep them; the others get one core each, in order, first those that nobody
/// has, then shared ones (with a warning). The threads of CUDA devices run where the system puts them: no
/// cores, and each its share of as many threads as there are in `allowed`. Throws pp::Error (device) for a core
/// that is not in `allowed`.
CoreBinding bind_cores(std::span<const Device> devices, std::span<const int> allowed);

/// The background work of one thread.
class BackgroundWork {
 public:
  struct Clocks {
    std::function<Seconds()> wall;
    std::function<Seconds()> computed;  ///< by the calling thread, since any moment
    std::function<void(Seconds)> sleep;
  };
  static Clocks of_thread();

  explicit BackgroundWork(Clocks clocks = of_thread());

  /// Calls `work`, which waits for nothing but a core. Where it had to wait for that, others compute there.
  /// Then the thread leaves the core to them for 30 times as long as it has computed since it did so before,
  /// for half a second at most. Alone on its core it is never kept.
  void compute(const std::function<void()>& work);

 private:
  Clocks clocks_;
  Seconds left_at_;  ///< computed by then
};

}  // namespace pp::run
