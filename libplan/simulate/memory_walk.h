// Memory of every worker: over its program (internal to the simulator), and over time by part.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// What one worker holds at one time.
struct MemoryParts {
  Bytes weights, gradients, optimizer, versions, saved, boundary, workspace;
  bool operator==(const MemoryParts&) const = default;
};

struct MemoryPart {
  std::string_view name;
  Bytes MemoryParts::*bytes;
};

/// What is always there first, what comes and goes last: the order in which pictures stack them.
inline constexpr std::array kMemoryParts{
    MemoryPart{"weights", &MemoryParts::weights},     MemoryPart{"gradients", &MemoryParts::gradients},
    MemoryPart{"optimizer", &MemoryParts::optimizer}, MemoryPart{"boundary", &MemoryParts::boundary},
    MemoryPart{"versions", &MemoryParts::versions},   MemoryPart{"saved", &MemoryParts::saved},
    MemoryPart{"workspace", &MemoryParts::workspace}};

constexpr Bytes total(const MemoryParts& parts) {
  Bytes sum;
  for (const MemoryPart& part : kMemoryParts) sum += parts.*part.bytes;
  return sum;
}

enum class WalkPoint { before_all, start, end };

/// Called with an operation's id (kNone before all) and what its worker holds from that point on.
using MemoryVisit = std::function<void(int id, WalkPoint point, const MemoryParts& held)>;

/// Walks one list once: F takes the saved bytes and the input when it starts (the input alone where R follows,
/// which takes the saved bytes then), B or W returns them when it ends, the workspace lives inside an
/// operation; layers that run again are there inside B, or from I to the end of W. Where it is known what waits
/// for W, I returns the rest. Operations of one worker
/// never overlap, so the list fixes the sequence and no times are needed.
///
/// Versions: a synchronous worker keeps StageCosts::versions. An asynchronous one makes a new version at each
/// U; its micro-batches in flight hold the version they ran forward on, and the newest is always there; at
/// least StageCosts::versions. O(operations of the worker).
void walk_worker(const ProgramIndex& index, const SimulationInput& input, int worker, const MemoryVisit& visit);

/// The largest values of every walk. O(operations).
std::vector<MemoryPeak> walk_memory(const ProgramIndex& index, const SimulationInput& input);

/// From `time` on until the next step's time. Two steps at one time: the first held for an instant only, inside
/// an operation without length or between two operations that touch.
struct MemoryStep {
  Seconds time{};
  MemoryParts held;
  bool operator==(const MemoryStep&) const = default;
};

/// By time; the first step is at 0.
using MemoryCurve = std::vector<MemoryStep>;

/// One curve per worker, whose largest values are result.memory. `result` is simulate(input). O(operations).
/// Throws pp::Error (internal) when it is the result of another input.
std::vector<MemoryCurve> memory_curves(const SimulationInput& input, const SimulationResult& result);

/// The largest total of all curves.
Bytes highest(std::span<const MemoryCurve> curves);

/// `columns` equal parts of [0, length]: what is held at the moment of the largest total in each, so that no
/// peak is lost, however short. O(steps + columns).
std::vector<MemoryParts> sample(const MemoryCurve& curve, Seconds length, int columns);

}  // namespace pp::plan
