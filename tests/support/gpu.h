// For suites gpu/...: their cases run where there is a CUDA device and say so where there is none. Include it
// after the doctest wrapper.
#pragma once

#include <exception>
#include <thread>

#include "libprofile/device/cuda_devices.h"
#include "tests/support/skip.h"

/// First line of a case that needs so many devices; CTest shows the case as skipped.
#define PP_NEEDS_CUDA(devices)                                       \
  if (pp::profile::cuda_device_count() < (devices)) {                \
    pp::test::skip("fewer than " #devices " CUDA devices are here"); \
    return;                                                          \
  }                                                                  \
  static_cast<void>(0)

namespace pp::test {

/// `body()` on a thread of its own, because entering a device changes the thread for good.
template <class Body>
void on_own_thread(const Body& body) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

}  // namespace pp::test
