// A simulated step as an SVG picture: self-contained, without scripts or fonts, the same bytes for the same
// input.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/simulate/memory_curve.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct SvgOptions {
  std::string title;       ///< one line: model, schedule, sizes
  double width = 1200;     ///< pixels, at least 400
  std::string subtitle{};  ///< empty: makespan, bubble and counts
  /// So that pictures can be compared: what time and memory axes reach at least, and the pixels that the names
  /// of the rows have at least (names_width).
  Seconds length{};
  Bytes full_memory{};
  double names = 0;
  /// What is known of a plan; empty: of nothing.
  std::vector<std::string> stage_layers{};  ///< per stage: `conv1 .. conv3`
  std::vector<std::string> devices{};       ///< per worker: `cpu:0`
  std::vector<Bytes> limits{};              ///< per worker: what its device holds; 0: unknown
};

/// From top to bottom: title and figures; legend; a time axis with one row per worker, named after its stages,
/// layers and device, operations as boxes (what fits of `F2.1` on all boxes of a kind, or a number on every
/// second, fifth, ... of the widest; all of it as tooltip), idle time hatched, its share at the right, messages
/// as arrows unless they are too many to follow; memory over time per worker, stacked by part, under the limit,
/// if `memory` has a curve per worker and they hold anything. Stages of one worker differ in lightness;
/// replicas that do the same at the same times share a row.
///
/// Runs of operations that are too short to draw become one box, as high as they are busy: about 4 MB at most
/// for any number of operations on up to 1000 workers. O(operations).
std::string timeline_svg(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const SvgOptions& options);

/// What the names of its rows take: where its time axis begins.
double names_width(const SimulationResult& result, std::span<const MemoryCurve> memory,
                   const SvgOptions& options);

}  // namespace pp::plan
