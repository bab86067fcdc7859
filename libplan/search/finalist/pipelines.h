// Whole pipelines side by side: the first stands for all of them while a finalist is improved, and all of them
// are what is simulated in the end. Workers of one place stand next to each other, one of each pipeline.
#pragma once

#include <span>
#include <vector>

#include "libplan/price/pricing.h"
#include "libplan/search/finalist/finalist.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Stages and workers of the first pipeline, its devices and micro-batches, with these programs and the sums of
/// gradients over the pipelines beside it.
Assignment first_pipeline(const Finalist& finalist, const std::vector<WorkerProgram>& programs);

/// All pipelines of a finalist whose assignment is that of the first; `programs`: of all workers, or those of
/// the first pipeline alone, which prices look at.
enum class Copies { all, first };
Assignment all_pipelines(const Finalist& finalist, Copies programs);

/// Of the micro-batches of the first of `pipelines`, which has the largest: 0, q, 2 q, ...
MicroBatchScale first_share(const MicroBatchScale& all, int pipelines);

/// Per place, the least limit of its workers.
std::vector<Bytes> least_limits(std::span<const Bytes> limits, int pipelines);

}  // namespace pp::plan
