// How a stream of frames went, from what the workers wrote down. Torch-free.
#pragma once

#include <span>

#include "librun/report/report.h"
#include "librun/worker/record.h"

namespace pp::run {

/// Of `stages` stages, over the frames whose first and last forward the records have; the period is left to the
/// caller.
FramesReport frames_report(std::span<const WorkerRecord* const> workers, int stages);

}  // namespace pp::run
