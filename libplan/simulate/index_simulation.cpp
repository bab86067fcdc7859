#include "libplan/simulate/index_simulation.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void misfit(const std::string& message) {
  throw Error(ErrorKind::internal, "simulation: " + message);
}

void check_size(const char* what, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  misfit(std::to_string(found) + " " + what + ", expected " + std::to_string(wanted));
}

/// Sums over a worker's operations stay integers.
void check_bytes(const SimulationInput& input) {
  constexpr double kMost = 4e18;  // below 2^63 by more than what is rounded
  double scale = 1, sum = 0;
  for (const double one : input.micro_batch_scale) scale = std::max(scale, one);
  const double held = scale * (input.programs.micro_batches + 1);
  const auto add = [&](const std::string& what, double times, std::initializer_list<Bytes> parts) {
    for (const Bytes bytes : parts) sum += times * static_cast<double>(bytes.value);
    if (sum <= kMost) return;
    throw Error(ErrorKind::data, what + ": with it the stages hold and send more than 4e18 bytes in " +
                                     std::to_string(input.programs.micro_batches) +
                                     " micro-batches, which cannot be added up");
  };
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    const StageCosts& stage = input.stages[s];
    const std::string what = "stage " + std::to_string(s);
    add(what, held,
        {stage.saved, stage.again, stage.again_split, stage.input, stage.waiting.value_or(Bytes(0)),
         stage.workspace});
    add(what, double(stage.versions) + input.programs.micro_batches, {stage.weights});
    add(what, 1, {stage.gradients, stage.optimizer, stage.boundary});
  }
  for (const StageEdge& edge : input.edges) {
    add("stages " + std::to_string(number(edge.from)) + " to " + std::to_string(number(edge.to)), held,
        {edge.activation, edge.gradient});
  }
}

}  // namespace

ProgramIndex index_simulation(const SimulationInput& input) {
  const ProgramSet& set = input.programs;
  if (!input.cards.empty()) check_size("cards", input.cards.size(), set.workers.size());
  if (!input.hardware.empty()) check_size("pieces of hardware", input.hardware.size(), set.workers.size());
  check_size("stage costs", input.stages.size(), set.stage_workers.size());
  for (const LinkLevel& level : input.links) {
    if (!level.groups.empty()) check_size("groups of a link", level.groups.size(), set.workers.size());
  }
  if (!input.micro_batch_scale.empty()) {
    check_size("micro-batch scales", input.micro_batch_scale.size(), at(set.micro_batches));
  }
  if (!input.micro_batch_bytes.empty()) {
    check_size("micro-batch bytes", input.micro_batch_bytes.size(), at(set.micro_batches));
  }
  if (!input.tied_all_reduce.empty()) {
    check_size("tied all-reduces", input.tied_all_reduce.size(), set.tied.size());
  }
  if (!(input.all_reduce_overlap >= 0 && input.all_reduce_overlap <= 1)) {
    misfit("all_reduce_overlap = " + std::to_string(input.all_reduce_overlap) + "; it is a share, 0 to 1");
  }
  check_bytes(input);
  std::vector<std::pair<StageId, StageId>> skips;
  for (const StageEdge& edge : input.edges) skips.emplace_back(edge.from, edge.to);
  ProgramIndex index = index_programs(set, skips);
  if (!input.own_times.empty()) check_size("times of operations", input.own_times.size(), index.ops.size());
  return index;
}

}  // namespace pp::plan
