// How a rank ends a run that another one has ended.
#pragma once

#include <string>

#include "libprofile/core/error.h"

namespace pp::run {

/// A run on several ranks cannot begin: all of them know.
class NotBegun : public Error {
 public:
  using Error::Error;
};
/// The run has failed, or cannot begin, and rank 0 says why.
class SaidElsewhere : public Error {
 public:
  SaidElsewhere(ErrorKind kind, const std::string& what, bool begun = true)
      : Error(kind, what), begun_(begun) {}
  bool begun() const { return begun_; }

 private:
  bool begun_;
};

}  // namespace pp::run
