// Measures what handing a boundary tensor from one worker to another costs on this machine: the link that plans
// are priced with. Plain values only: apps include this header.
#pragma once

#include <functional>
#include <string_view>

#include "libprofile/core/cluster.h"
#include "libprofile/core/units.h"

namespace pp::run {

/// `pp-profile links --devices cpu:2` is two devices of one core each.
struct LinkOptions {
  int devices = 2;
  int cores_per_device = 1;
  Bytes smallest{1 << 10};
  Bytes largest{8 << 20};
  /// Messages per size and direction: their median is the sample. Warm-up messages come on top.
  int repetitions = 60;
  int warm_up = 10;
};

/// Hands messages back and forth between neighbouring CPU devices, threads pinned to their cores, over the
/// mailboxes that pp-run uses, and fits latency + size/bandwidth (least squares of the relative error, because
/// sizes span four orders).
///
/// In-process hand-over moves a reference, so its own cost does not depend on the size. What the runtime pays
/// in addition is paid by the consumer: the producer has just written the bytes on another core, so the
/// consumer's first read of them comes from the shared cache or from memory. A message therefore lasts from the
/// moment the producer, its bytes written, puts it into the mailbox, until the consumer, blocked in its receive
/// as a pipeline stage is, has woken up and read every cache line once. The write is not counted: it is part of
/// the producing layer's time. The read is counted in full although a layer of the same stage would read its
/// input too, from a warmer cache: the cost is an upper bound.
///
/// Device i has the i-th group of allowed cores and an equal share of the memory. One level, `process`.
/// Throws pp::Error: (usage) for fewer than two devices, (device) when there are not enough cores.
/// `progress` gets a share in [0, 1].
Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress = {});

/// latency and bandwidth of `samples` and the largest relative error, as a level named `name` of `devices`
/// devices. Needs two different sizes; a fit with negative latency is repeated without latency.
Level fit_link(std::string_view name, int devices, std::vector<LinkSample> samples);

}  // namespace pp::run
