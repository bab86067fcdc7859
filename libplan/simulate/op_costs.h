// What operations and messages take by themselves, when nothing else is in their way: what the lower bounds add
// up.
#pragma once

#include <vector>

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Seconds of `op`. An AR takes at least 0: what it really takes depends on its mode and on other workers.
double least_duration(const SimulationInput& input, const Op& op);

/// From the end of an operation to the arrival of its tensor on another worker, when the ports are free.
class FreeTransfers {
 public:
  /// Both must outlive this object.
  FreeTransfers(const ProgramIndex& index, const SimulationInput& input);
  /// Seconds. `edge` as for_each_producer() gives it; 0 within a worker and where nothing is sent.
  double seconds(int producer, int consumer, int edge) const;

 private:
  /// What one whole micro-batch puts on a dependency; no tensors: no message.
  struct Flow {
    double activation = 0;  ///< bytes
    double gradient = 0;
    int activation_tensors = 0;
    int gradient_tensors = 0;
  };

  const ProgramIndex& index_;
  const SimulationInput& input_;
  std::vector<Flow> flows_;  ///< per dependency
};

}  // namespace pp::plan
