// What no order of the operations can beat: bounds on the makespan and on the steady period of a set of
// programs. They know which worker runs which operation, the dependencies, the durations and the free
// transfers; the order of the lists is not looked at, only that U ends a synchronous step.
#pragma once

#include <span>

#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// One operation on one machine, in seconds: it cannot start before `head`, and `tail` must pass after it.
struct Job {
  double head = 0;
  double duration = 0;
  double tail = 0;
};

/// Least end of all jobs on one machine, tails included, when jobs may be interrupted: always run the one with
/// the longest tail. Exact for that relaxation, a lower bound otherwise. O(n log n). J. R. Jackson, "Scheduling
/// a production line to minimize maximum tardiness" (1955), in the form used for job shops since J. Carlier
/// (EJOR 1982).
double one_machine_bound(std::span<const Job> jobs);

/// At most the simulated makespan of every valid set with these operations, whatever the order of its lists:
/// the largest one_machine_bound() of a worker, where heads and tails are longest paths through the
/// dependencies; so it covers the critical path too. All-reduces count as free. O(operations log operations).
/// Throws what simulate() throws for `input`, except deadlocks.
Seconds makespan_bound(const SimulationInput& input);

/// The sum of operations of the busiest worker, or of all that share its hardware: at most the steady period of
/// chained steps.
Seconds period_bound(const SimulationInput& input);

}  // namespace pp::plan
