// A training without data files, short enough to be repeated.
#pragma once

#include <cstdint>

#include "librun/options/run_options.h"

namespace pp::test {

/// Synthetic samples, 24 in an epoch: with mini-batches of 8 three steps.
inline run::RunOptions synthetic_options(std::int64_t steps) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = steps;
  options.learning_rate = 0.05;
  return options;
}

}  // namespace pp::test
