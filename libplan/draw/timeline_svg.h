// A simulated step as an SVG picture: self-contained, without scripts or fonts, the same bytes for the same
// input.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct SvgOptions {
  std::string title;    ///< one line: model, schedule, sizes
  double width = 1200;  ///< pixels, at least 400
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
/// replicas that do the same at the same times share a row, and of more than 16 workers those of the same
/// stages, drawn as the first of them does it, with their count.
///
/// Runs of operations that are too short to draw become one box, as high as they are busy: about 4 MB at most
/// for any number of operations on up to 1000 workers. O(operations).
std::string timeline_svg(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const SvgOptions& options);

/// What one of several timelines draws. All of it must outlive the call.
struct SvgTimeline {
  const SimulationResult* result = nullptr;
  std::span<const MemoryCurve> memory;
  SvgOptions options;
};
/// Below each other, on one time axis and one scale of memory; as wide as the widest asks for. At least one.
std::string timelines_svg(std::span<const SvgTimeline> timelines);

}  // namespace pp::plan
