// Jobs that a test drives itself.
#pragma once

#include "librun/worker/job.h"

namespace pp::test {

/// Commands the whole run at once, as a driver would that waits for nothing.
inline void command_all(pp::run::Job& job) {
  const pp::run::Length& length = job.setup.length;
  for (int epoch = 0; epoch < length.epochs(); ++epoch) {
    const pp::run::Step first = length.first(epoch), end = first + length.count(epoch);
    job.commands.train(epoch, {.first = first, .end = end, .epoch_first = first});
    job.commands.grant(end);
    if (job.evaluates()) job.commands.evaluate(epoch, job.test_shape.count);
  }
  job.commands.stop();
}

}  // namespace pp::test
