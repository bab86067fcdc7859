// Memory of messages that nobody waits for any longer. Free of Torch.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pp::run {

/// The library may still read or write it, so it lives as long as the process.
inline void leave_to_library(std::shared_ptr<void> memory) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard held(*mutex);
  kept->push_back(std::move(memory));
}

}  // namespace pp::run
