// What is refused for its size before anything is allocated for it.
#pragma once

#include <cstdint>

namespace pp::plan {

/// Most operations of one set of programs. Simulating them takes a few hundred bytes each.
inline constexpr std::int64_t kOperationLimit = 2'000'000;

/// Most workers that are simulated.
inline constexpr std::int64_t kWorkerLimit = 20'000;

/// Most micro-batches of a step.
inline constexpr int kMicroBatchLimit = 1'000'000;

}  // namespace pp::plan
