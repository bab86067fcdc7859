// The workers of a job on their threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "librun/threads/threads.h"
#include "librun/worker/worker.h"

namespace pp::run {

/// The workers of this process and their threads; however the driver's work ends, all of them are stopped and
/// joined.
class Crew {
 public:
  /// Throws pp::Error (run) when a thread cannot be started.
  explicit Crew(Job& job, Threads::Start start = Threads::system());
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void join() { threads_.join(); }
  /// The first worker that has not come back after `most`; none when all of them have.
  std::optional<WorkerId> join_within(Seconds most);
  /// To be looked into after join().
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Job& job_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Threads threads_;
};

}  // namespace pp::run
