// The whole message of the pp::Error that a call throws.
#pragma once

#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::test {

/// `[data] context: message`; "no error" when `body` returns.
template <class Body>
std::string error_text(Body&& body) {
  static constexpr const char* kKinds[]{"[usage] ", "[data] ", "[device] ", "[run] ", "[internal] "};
  try {
    static_cast<void>(std::forward<Body>(body)());
  } catch (const Error& error) {
    return kKinds[static_cast<int>(error.kind())] + std::string(error.what());
  }
  return "no error";
}

}  // namespace pp::test
