// Chimera with direct concatenation (Li and Hoefler, SC'21): two copies of the model run through the same
// workers in opposite directions. Forward doubling and backward halving are not generated.
#include <algorithm>
#include <utility>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {

Schedule generate_chimera(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  if (k % 2 != 0) refuse(request, "workers = " + std::to_string(k) + " is odd");
  require_multiple(request, k);

  Schedule schedule;
  std::vector<std::vector<std::pair<int, Op>>> slots(at(k));  // per worker: slot, operation
  for (int s = 0; s < k; ++s) {
    schedule.stage_workers.push_back({WorkerId{std::min(s, k - 1 - s)}, WorkerId{std::max(s, k - 1 - s)}});
    for (int m = 0; m < request.micro_batches; ++m) {
      const int place = m % k;  // in its unit of K micro-batches; the first half goes down, the second up
      const bool down = place < k / 2;
      const int start = 2 * (m - place) + 2 * (place % (k / 2));
      auto& worker = slots[at(down ? s : k - 1 - s)];
      worker.push_back({start + s, {OpKind::forward, StageId{s}, m}});
      worker.push_back({start + 2 * k - 1 - s, {OpKind::backward, StageId{s}, m}});
    }
  }
  for (int r = 0; r < k; ++r) {
    auto& worker = slots[at(r)];
    std::ranges::sort(worker, {}, [](const auto& entry) { return entry.first; });
    Program program;
    for (const auto& [slot, op] : worker) program.push_back(op);
    append_updates(program, {StageId{r}, StageId{k - 1 - r}}, 2);
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

}  // namespace pp::plan
