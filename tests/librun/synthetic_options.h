// A training without data files, short enough to be repeated.
#pragma once

#include <cstdint>

#include "librun/options/run_options.h"

namespace pp::test {

/// Of 24 samples in an epoch, mini-batches of 8 are three steps.
inline run::RunOptions synthetic_options(std::int64_t steps, int samples = 24) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = samples;
  options.steps = steps;
  options.learning_rate = 0.05;
  return options;
}

}  // namespace pp::test
