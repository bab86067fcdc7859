// The one boundary where errors of LibTorch become pp::Error: around each layer, each loss and each optimizer
// step.
#pragma once

#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::model {

/// The device had no memory left for a tensor; after it nothing of the failed operation is held.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(std::string message) : Error(ErrorKind::run, std::move(message)) {}
};

namespace detail {

/// To be called inside a catch block: rethrows a pp::Error as it is, memory that ran out as OutOfMemory, and
/// what LibTorch or the standard library threw as pp::Error (run), without LibTorch's backtrace.
[[noreturn]] void rethrow_as_error();

/// Runs `body`; what leaves it is a pp::Error that carries the text of `context()` in front.
template <class Context, class Body>
auto guarded(Context&& context, Body&& body) {
  try {
    try {
      return std::forward<Body>(body)();
    } catch (...) {
      rethrow_as_error();
    }
  } catch (Error& error) {
    error.add_context(context());
    throw;
  }
}

}  // namespace detail
}  // namespace pp::model
