// A peer's plan as a table.
#include "apps/cli/table.h"
#include "apps/plan/tables.h"
#include "libprofile/core/counted.h"

namespace pp::plan_tool {

std::string peer_plan_text(const plan::PeerPlan& plan, Seconds elapsed) {
  cli::Table table({{"stage"}, {"layers"}, {"from .. to", cli::Align::left}, {"replicas"}, {"compute ms"}});
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::PeerStage& stage = plan.stages[s];
    const std::string range =
        stage.layers.size() > 1 ? stage.layers.front() + " .. " + stage.layers.back() : stage.layers.front();
    table.add({std::to_string(s), std::to_string(stage.layers.size()), range,
               std::to_string(stage.replicas) +
                   (stage.tensor_degree > 1 ? " of " + std::to_string(stage.tensor_degree) + " devices" : ""),
               cli::cell(1e3 * stage.compute.count())});
  }
  const double gap = plan.lower_bound > Seconds() ? plan.objective / plan.lower_bound - 1 : 0;
  std::string text = plan.profile + " under the cost model " + std::string(name_of(plan.options.model)) + " (" +
                     std::string(name_of(plan.options.strategy)) +
                     "): " + counted(std::ssize(plan.stages), "stage") + ", replicas " +
                     plan::replicas_text(plan) + ", " + counted(plan::device_count(plan.options), "device") +
                     "\n\n" + table.text() + '\n';
  if (plan.copies > 1) text += std::to_string(plan.copies) + " copies of the whole pipeline\n";
  return text + "objective " + to_text(plan.objective) + ", lower bound " + to_text(plan.lower_bound) +
         ", gap " + cli::percent(gap) + "  (" + plan.search + "; " + to_text(elapsed) + ")\n";
}

}  // namespace pp::plan_tool
