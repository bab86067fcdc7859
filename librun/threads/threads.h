// Threads that are joined whatever happens, also when the system refuses the next one. Free of Torch.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

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

}  // namespace pp::run
