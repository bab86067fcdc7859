// Independent pieces of one search on several threads. Each writes to its own place, so that results do not
// depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "libprofile/core/index.h"

namespace pp::plan {

/// Runs `work(0)` to `work(count - 1)` on `threads` threads and rethrows the error of the smallest index.
/// Indices are handed out in order, so every one before a failure has been run.
template <class Work>
void for_each_index(std::size_t count, int threads, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t t = 1; t < std::min(at(threads), count); ++t) helpers.emplace_back(run);
    run();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace pp::plan
