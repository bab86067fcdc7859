// A simulated step as text for the terminal.
#pragma once

#include <span>
#include <string>

#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct TextOptions {
  int width = 100;     ///< columns in all; the timeline itself never has fewer than 8
  bool color = false;  ///< ANSI sequences, 256 colours
};

/// A time axis, one row per worker with its idle share, a legend; then, if `memory` has a curve per worker and
/// they hold anything, one row per worker of memory over time, all to one scale, with its peak.
///
/// An operation shows as much of its text as fits: `F2.1` where the worker has several stages, `F1`, `F`; small
/// letters for its second, fourth, ... stage. A forward of one cell is its micro-batch's last digit. Where
/// operations are shorter than half a cell, the cell is the letter of the kind that takes most of its time.
/// UTF-8. O(operations + workers * width).
std::string timeline_text(const SimulationResult& result, std::span<const MemoryCurve> memory,
                          const TextOptions& options = {});

}  // namespace pp::plan
