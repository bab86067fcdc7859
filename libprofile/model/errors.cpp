#include "libprofile/model/errors.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string_view>

namespace pp::model::detail {

void rethrow_as_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemory(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    // The CPU allocator throws a plain c10::Error.
    if (text.find("can't allocate memory") != std::string::npos) throw OutOfMemory(text);
    throw Error(ErrorKind::run, text);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("the host has no memory left");
  } catch (const std::exception& error) {
    throw Error(ErrorKind::run, error.what());
  }
}

}  // namespace pp::model::detail
