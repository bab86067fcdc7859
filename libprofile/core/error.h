// The one exception of the toolchain. A message names the thing, the value found, the limit and the remedy;
// contexts added on the way up (file, pointer, stage) stand before it, outermost first.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace pp {

/// Apps turn the kind into the exit code: `usage`, `data` and `device` are found before work starts (2), `run`
/// and `internal` are failures during work (1).
enum class ErrorKind { usage, data, device, run, internal };

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) { render(); }

  ErrorKind kind() const { return kind_; }
  /// `context: context: message`
  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& message() const { return message_; }
  /// Outermost first.
  const std::vector<std::string>& contexts() const { return contexts_; }

  /// Puts `context` in front of all others; for `catch (pp::Error& e) { e.add_context(...); throw; }`.
  void add_context(std::string context);

 private:
  void render();

  ErrorKind kind_;
  std::string message_;
  std::vector<std::string> contexts_;
  std::string text_;
};

/// Throws; for checks in a row.
[[noreturn]] void refuse(ErrorKind kind, const std::string& message);

/// Runs `body`; an Error that leaves it carries `context` in front.
template <class Body>
auto with_context(const std::string& context, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& e) {
    e.add_context(context);
    throw;
  }
}

/// What an exception says; `unknown error` where it is none of the standard's.
std::string text_of(const std::exception_ptr& error);

template <class E>
bool holds(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace pp
