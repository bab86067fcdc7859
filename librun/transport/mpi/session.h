// A process's stay among MPI's ranks.
#pragma once

namespace pp::run {

/// Joins when made, leaves when destroyed. Throws pp::Error (run) where the library has no room for threads
/// that call it one at a time, if they are asked for.
class MpiSession {
 public:
  enum class Threads { main_alone, one_at_a_time };
  explicit MpiSession(Threads threads);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  static int rank();
  static int size();
};

}  // namespace pp::run
