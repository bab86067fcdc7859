// The message of the pp::Error that a call throws.
#pragma once

#include <optional>
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

/// The message alone; empty when `call` returns. An error of another kind than this one passes through.
template <class Call>
std::string error_of(Call&& call, std::optional<ErrorKind> kind = {}) {
  try {
    static_cast<void>(call());
  } catch (const Error& error) {
    if (kind && error.kind() != *kind) throw;
    return error.what();
  }
  return "";
}

}  // namespace pp::test
