#include "libplan/search/finalist/pipelines.h"

#include <algorithm>
#include <utility>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Of one pipeline, whose gradients are then added up over those beside it: the first, which has the largest
/// micro-batches.
std::vector<WorkerProgram> with_reductions(const Finalist& finalist,
                                           const std::vector<WorkerProgram>& programs) {
  if (finalist.pipelines == 1) return programs;
  return side_by_side({finalist.placed->stage_workers, programs}, 1).workers;
}

}  // namespace

Assignment first_pipeline(const Finalist& finalist, const std::vector<WorkerProgram>& programs) {
  Assignment assignment;
  assignment.stage_layers = stage_layers(finalist.partition, finalist.order);
  for (const auto& workers : finalist.placed->stage_workers) {
    auto& positions = assignment.stage_workers.emplace_back();
    for (const WorkerId worker : workers) positions.push_back(number(worker));
  }
  for (int w = 0; w < finalist.workers(); w += finalist.pipelines)
    assignment.worker_devices.push_back(finalist.devices[at(w)]);
  assignment.programs = with_reductions(finalist, programs);
  assignment.micro_batches = finalist.micro_batches / finalist.pipelines;
  assignment.rules = finalist.schedule->rules;
  assignment.shard = finalist.shard;
  return assignment;
}

Assignment all_pipelines(const Finalist& finalist, Copies programs) {
  const int q = finalist.pipelines;
  if (q == 1) return finalist.assignment;
  Assignment all = finalist.assignment;
  all.micro_batches = finalist.micro_batches;
  all.worker_devices.assign(finalist.devices.begin(), finalist.devices.begin() + finalist.workers());
  for (std::vector<int>& workers : all.stage_workers) {
    std::vector<int> copies;
    for (const int worker : workers) {
      for (int k = 0; k < q; ++k) copies.push_back(worker * q + k);
    }
    workers = std::move(copies);
  }
  if (programs == Copies::all) {
    all.programs = side_by_side({finalist.placed->stage_workers, std::move(all.programs)}, q).workers;
    return all;
  }
  all.programs.assign(at(finalist.workers()), {});
  for (std::size_t w = 0; w < finalist.assignment.programs.size(); ++w)
    all.programs[w * at(q)] = finalist.assignment.programs[w];
  return all;
}

MicroBatchScale first_share(const MicroBatchScale& all, int pipelines) {
  MicroBatchScale share;
  for (std::size_t m = 0; m < all.times.size(); m += at(pipelines)) {
    share.times.push_back(all.times[m]);
    share.bytes.push_back(all.bytes[m]);
  }
  return share;
}

std::vector<Bytes> least_limits(std::span<const Bytes> limits, int pipelines) {
  std::vector<Bytes> least;
  for (std::size_t w = 0; w < limits.size(); w += at(pipelines))
    least.push_back(std::ranges::min(limits.subspan(w, at(pipelines))));
  return least;
}

}  // namespace pp::plan
