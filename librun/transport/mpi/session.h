// A process's stay among MPI's ranks.
#pragma once

#include <string>

#include "libprofile/core/units.h"

namespace pp::run {

/// Joins when made (the process, which calls itself `me`, ends where other ranks have not come within
/// `patience`), leaves when destroyed.
/// Throws pp::Error (run) where the library has no room for threads that call it one at a time.
class MpiSession {
 public:
  MpiSession(std::string me, Seconds patience);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  static int rank();
  static int size();
};

}  // namespace pp::run
