// Where the zero-bubble search starts: orders by rule, and by list scheduling over a small grid of parameters,
// which plays one step in time and decides at each worker what to run next, knowing what is on its way.
#pragma once

#include <string>
#include <vector>

#include "libplan/search/zero_bubble/pipeline.h"

namespace pp::plan {

/// How a worker chooses when several operations could run.
struct GreedyRule {
  /// Per worker: most micro-batches between F and I. At least 1.
  std::vector<int> windows;
  /// Per worker: a W runs before anything else when more than this many are due.
  std::vector<int> backlogs;
  /// Otherwise W fills gaps: it runs when at least this share of it fits before the next known arrival. 0: W
  /// never waits; 1: W delays nothing.
  double fitting_share = 1;
  /// When both could start: I, which serves the workers before, or F, which serves those behind.
  bool inputs_first = false;
};

/// Valid for `rooms`, and never deadlocks: it is the record of a run. O(operations * workers).
Order schedule_greedily(const Pipeline& pipeline, const std::vector<Room>& rooms, const GreedyRule& rule);

struct NamedOrder {
  std::string name;  ///< for people
  Order order;
};

/// ZB-H1, ZB-H2 and 1F1B with split backwards, those that respect the rooms.
std::vector<NamedOrder> hand_written_orders(const std::vector<Room>& rooms);

/// The rule of the hand-written orders over a grid of windows and delays, and the list scheduler over its own.
/// All valid for the rooms; some may deadlock where the rooms of neighbours differ.
std::vector<NamedOrder> starting_orders(const Pipeline& pipeline, const std::vector<Room>& rooms);

}  // namespace pp::plan
