// Where the zero-bubble search starts: orders by rule and by list scheduling, over a small grid of parameters.
#pragma once

#include <string>
#include <vector>

#include "libplan/search/zero_bubble/pipeline.h"

namespace pp::plan {

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
