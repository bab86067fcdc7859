#include "libprofile/core/error.h"

namespace pp {

void Error::add_context(std::string context) {
  contexts_.insert(contexts_.begin(), std::move(context));
  render();
}

void Error::render() {
  text_.clear();
  for (const std::string& context : contexts_) text_ += context + ": ";
  text_ += message_;
}

void refuse(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

}  // namespace pp
