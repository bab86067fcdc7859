// What messages between cores cost, over the queues that pp-run uses. Internal to the link meter.
#pragma once

#include <vector>

#include "librun/links/link_samples.h"

namespace pp::run {

using Cores = std::vector<int>;

/// Messages of each size, handed back and forth between two pinned threads. Both directions are counted.
///
/// In-process hand-over moves a reference, so its own cost does not depend on the size. What the runtime pays
/// in addition is paid by the consumer: the producer has just written the bytes on another core, so the
/// consumer's first read of them comes from the shared cache or from memory. A message therefore lasts from the
/// moment the producer, its bytes written, puts it into the queue, until the consumer, blocked in its receive
/// as a pipeline stage is, has woken up and read every cache line once. The write is not counted: it is part of
/// the producing layer's time. The read is counted in full although a layer of the same stage would read its
/// input too, from a warmer cache: the cost is an upper bound.
std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep);

}  // namespace pp::run
