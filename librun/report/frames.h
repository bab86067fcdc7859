// How a stream of frames went, from what the workers wrote down. Torch-free.
#pragma once

#include <span>

#include "librun/report/record.h"
#include "librun/report/report.h"

namespace pp::run {

/// Of `stages` stages, over the frames whose first and last forward the records have; the period is left to the
/// caller.
FramesReport frames_report(std::span<const WorkerRecord* const> workers, int stages);

}  // namespace pp::run
