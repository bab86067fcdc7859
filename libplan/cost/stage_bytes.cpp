#include "libplan/cost/stage_bytes.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {

Hardware hardware_of(const Device& device) { return {device.kind, device.node, device.index}; }

bool share_memory(const Device& a, const Device& b) { return hardware_of(a) == hardware_of(b); }

HandOver hand_over(const Device& a, const Device& b) {
  const bool one_process = a.kind == DeviceKind::cpu && b.kind == DeviceKind::cpu && a.node == b.node;
  return one_process || share_memory(a, b) ? HandOver::reference : HandOver::copy;
}

HandOver hand_over(const Cluster& cluster, std::span<const int> positions) {
  const auto device = [&](int position) -> const Device& { return cluster.devices[at(position)]; };
  const bool shared = std::ranges::all_of(positions, [&](int position) {
    return hand_over(device(positions.front()), device(position)) == HandOver::reference;
  });
  return shared ? HandOver::reference : HandOver::copy;
}

std::int64_t message_bytes(HandOver hand_over, std::int64_t in, std::int64_t out) {
  return hand_over == HandOver::reference ? 0 : 2 * (in + out);
}

StageBytes stage_bytes(const StageContents& contents, const StageKeeping& keeping) {
  StageBytes part;
  const std::int64_t trained = contents.parameters - contents.frozen;
  part.weights = contents.parameters + contents.buffers;
  part.gradients = whole_bytes(keeping.gradient_ratio * static_cast<double>(contents.gradients));
  part.optimizer = whole_bytes(keeping.state_ratio * static_cast<double>(trained) / keeping.sharers);
  part.versions = whole_bytes((keeping.versions - 1.0) * static_cast<double>(part.weights - contents.frozen));
  part.in_flight = keeping.in_flight;
  part.smaller = keeping.smaller;
  part.scale = keeping.scale;
  part.input = keeping.runs_again ? contents.received : contents.kept;
  part.saved = contents.saved - std::min(contents.entering, part.input);
  part.boundary = contents.messages;
  part.workspace = contents.transient;
  // What is received and not kept stands beside what is sent until the forward ends; the profile's workspace
  // knows of it only where it is read.
  const std::int64_t passing = contents.received - part.input;
  if (passing > 0) part.workspace = std::max(part.workspace, passing + contents.sent);
  return part;
}

}  // namespace pp::plan
