// A training without data files, short enough to be repeated.
#pragma once

#include <cstdint>

#include "librun/options/run_options.h"

namespace pp::test {

/// An epoch of 24 samples has three steps with mini-batches of 8.
inline run::RunOptions synthetic_options(std::int64_t steps, int samples = 24) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = samples;
  options.steps = steps;
  options.learning_rate = 0.05;
  return options;
}

}  // namespace pp::test
