// A process's stay among MPI's ranks.
#pragma once

#include "libprofile/core/units.h"

namespace pp::run {

/// Joins when made (the process ends where other ranks have not come within `patience`), leaves when destroyed.
/// Throws pp::Error (run) where the library has no room for threads that call it one at a time.
class MpiSession {
 public:
  explicit MpiSession(Seconds patience);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  static int rank();
  static int size();
};

}  // namespace pp::run
