// Random planning problems against what the planner did not write: enumeration, other ways to the same number.
// Each check takes one problem and says what does not hold; empty: all does. A sample runs with the tests, many
// more in scripts/fuzz.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tests/libplan/search/instances.h"

namespace pp::plan::test {

/// No plan is below the bound, the planner's plan is above no simulated one by more than the gap, and there is
/// none exactly where nothing fits: chains and graphs of up to 4 layers on up to 3 devices, with a loss,
/// updates, unequal micro-batches, crowding, what was measured to wait and to be kept, memory limits, every
/// recompute mode, optimizer state that replicas share.
std::string check_certificate(Random& random);
/// A list of two schedules: no plan slower than the better of the two, and the lower of their bounds.
std::string check_pair(Random& random);
/// What the search and the simulator's input say a stage holds: the same bytes; and no simulated peak is above
/// the search's, whatever runs again.
std::string check_one_price(Random& random);
/// A search that is stopped at any time: its bound still holds.
std::string check_stopped(Random& random);
/// Messages of one port never overlap, and all bytes over it take no longer than the step.
std::string check_conservation(Random& random);
/// An all-reduce costs the same on the first devices of a machine and on a machine of these.
std::string check_parts(Random& random);
/// Recompute under windows of two and more: no choice of what runs again is below the bound.
std::string check_recompute(Random& random);
/// The period of chained steps: at most 5 % below that of two dozen later ones, and no less than the busiest
/// worker.
std::string check_steady(Random& random);
/// Time and memory of a pipeline without messages, by arithmetic of its own.
std::string check_arithmetic(Random& random);

/// Any request on any machine: never our own exception, a plan that keeps to it and comes back from its
/// document, and none that is slower by more than 5 % than that of the request with less left open.
std::string check_request(Random& random);

struct CrossCheck {
  std::string_view name;
  std::string (*run)(Random& random);
  int sample;  ///< instances in every test run
};
inline constexpr std::array kCrossChecks{
    CrossCheck{"certificate", check_certificate, 100},  CrossCheck{"pair", check_pair, 40},
    CrossCheck{"one price", check_one_price, 100},      CrossCheck{"stopped", check_stopped, 30},
    CrossCheck{"conservation", check_conservation, 60}, CrossCheck{"parts", check_parts, 300},
    CrossCheck{"recompute", check_recompute, 25},       CrossCheck{"steady", check_steady, 60},
    CrossCheck{"arithmetic", check_arithmetic, 100},    CrossCheck{"request", check_request, 100}};

}  // namespace pp::plan::test
