#include "libplan/cost/memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "libplan/schedule/versions.h"

namespace pp::plan {
namespace {

constexpr int kEndless = 1 << 20;  ///< a stream: no step ends the window

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

bool share_memory(const Device& a, const Device& b) {
  return a.kind == b.kind && a.node == b.node && a.index == b.index;
}

HandOver hand_over(const Device& a, const Device& b) {
  const bool one_process = a.kind == DeviceKind::cpu && b.kind == DeviceKind::cpu && a.node == b.node;
  return one_process || share_memory(a, b) ? HandOver::reference : HandOver::copy;
}

HandOver hand_over(const Cluster& cluster, std::span<const int> positions) {
  const auto device = [&](int position) -> const Device& {
    return cluster.devices[static_cast<std::size_t>(position)];
  };
  const bool shared = std::ranges::all_of(positions, [&](int position) {
    return hand_over(device(positions.front()), device(position)) == HandOver::reference;
  });
  return shared ? HandOver::reference : HandOver::copy;
}

std::int64_t message_bytes(HandOver hand_over, std::int64_t in, std::int64_t out) {
  return hand_over == HandOver::reference ? 0 : 2 * (in + out);
}

std::int64_t workspace_in_forward(std::int64_t workspace, std::int64_t passing, std::int64_t sent) {
  return passing == 0 ? workspace : std::max(workspace, passing + sent);
}

bool is_limited(const MemoryLimit& limit) { return limit.bytes != std::numeric_limits<std::int64_t>::max(); }

StageMemory::StageMemory(const Chain& chain, InFlight in_flight, MemoryLimit limit)
    : chain_(chain), in_flight_(std::move(in_flight)), limit_(limit) {}

int StageMemory::micro_batches_of(int replicas) const {
  return in_flight_.micro_batches == 0 ? kEndless : ceil_div(in_flight_.micro_batches, replicas);
}

int StageMemory::least_window(int replicas, int later) const {
  int least = ceil_div(later + replicas, replicas);
  if (in_flight_.rule == WindowRule::wide) least = 2 * least - 1;
  if (in_flight_.rule == WindowRule::explicit_list) {
    least = *std::min_element(in_flight_.windows.begin(), in_flight_.windows.end());
  }
  const int most = micro_batches_of(replicas);
  return in_flight_.all ? most : std::min(least, most);
}

std::int64_t StageMemory::least_excess(const StageRange& stage, int window) const {
  StageBytes part = fixed_bytes(stage, window);
  part.saved = chain_.sum(chain_.saved, stage.begin, stage.end);  // no more than saved and input together
  part.workspace = 0;
  return part.total() + limit_.context - limit_.bytes;
}

bool StageMemory::fits_at_least(int begin, int end, int replicas, int later) const {
  StageBytes part = fixed_bytes({begin, end, replicas}, least_window(replicas, later));
  const std::int64_t saved = chain_.sum(chain_.saved, begin, end);  // no more than saved and input together
  switch (in_flight_.recompute) {
    case RecomputeMode::never: part.saved = saved; break;
    case RecomputeMode::except_last:
    case RecomputeMode::always: part.again = saved; break;
    case RecomputeMode::automatic: part.workspace = 0; break;
  }
  return holds(part);
}

int StageMemory::demand(int replicas, const Behind& behind) const {
  if (in_flight_.all) return replicas * micro_batches_of(replicas);
  switch (in_flight_.rule) {
    case WindowRule::published: return replicas * ceil_div(behind.devices + replicas, replicas);
    case WindowRule::explicit_list:
      return replicas *
             in_flight_.windows[in_flight_.windows.size() - 1 - static_cast<std::size_t>(behind.stages)];
    case WindowRule::win:
    case WindowRule::wide: break;
  }
  return replicas * (1 + ceil_div(behind.demand, replicas));
}

int StageMemory::window(const StageRange& stage, int demand) const {
  int window = demand / stage.replicas;
  if (in_flight_.rule == WindowRule::wide) window = 2 * window - 1;
  return std::min(window, micro_batches_of(stage.replicas));
}

bool StageMemory::fits(const StageRange& stage, int demand) const {
  constexpr std::size_t kRemembered = 64;
  known_.resize(static_cast<std::size_t>(chain_.size()));
  std::vector<Windows>& row = known_[static_cast<std::size_t>(stage.begin)];
  row.resize(std::min(kRemembered, known_.size()));
  Windows& known = row[static_cast<std::size_t>(stage.end) % row.size()];
  if (known.end != stage.end) known = {.end = stage.end};
  const int wanted = window(stage, demand);
  if (wanted > known.fitting && wanted < known.too_wide)
    (fits_window(stage, wanted) ? known.fitting : known.too_wide) = wanted;
  return wanted <= known.fitting;
}

bool StageMemory::fits_window(const StageRange& stage, int window) const {
  StageBytes part = kept_bytes(stage, window);
  if (in_flight_.recompute != RecomputeMode::automatic) return holds(bytes_again(stage, part));
  if (holds(part)) return true;
  part.input = chain_.in_bytes(stage.begin, stage.end);
  const std::int64_t saved = std::exchange(part.saved, 0);
  if (!holds(part)) return false;  // whatever runs again
  part.again = saved;
  if (holds(part)) return true;  // the whole stage
  std::swap(part.saved, part.again);
  return holds(bytes_again(stage, part));
}

StageBytes StageMemory::fixed_bytes(const StageRange& stage, int window) const {
  const auto& [begin, end, replicas] = stage;
  const std::int64_t parameters = chain_.sum(chain_.parameters, begin, end);
  StageBytes part;
  part.weights = parameters + chain_.sum(chain_.buffers, begin, end);
  part.gradients = parameters;
  part.optimizer = static_cast<std::int64_t>(std::ceil(chain_.state_ratio * static_cast<double>(parameters)));
  const int versions = versions_kept(in_flight_.policy, window, in_flight_.stages, in_flight_.per_update);
  part.versions = (versions - 1) * part.weights;
  part.workspace = chain_.transient(begin, end);
  part.in_flight = window;
  return part;
}

StageBytes StageMemory::bytes(const StageRange& stage, int window) const {
  return bytes_again(stage, kept_bytes(stage, window));
}

StageBytes StageMemory::kept_bytes(const StageRange& stage, int window) const {
  StageBytes part = fixed_bytes(stage, window);
  const std::int64_t received = chain_.in_bytes(stage.begin, stage.end);
  const std::int64_t sent = chain_.out_bytes(stage.begin, stage.end);
  part.input = chain_.kept_bytes(stage.begin, stage.end);
  part.saved =
      chain_.sum(chain_.saved, stage.begin, stage.end) - chain_.saved_elsewhere(stage.begin, stage.end);
  part.boundary = message_bytes(limit_.in, received, 0) + message_bytes(limit_.out, 0, sent);
  part.workspace = workspace_in_forward(part.workspace, received - part.input, sent);
  return part;
}

StageBytes StageMemory::bytes_again(const StageRange& stage, StageBytes part) const {
  if (in_flight_.recompute == RecomputeMode::never) return part;
  if (in_flight_.recompute == RecomputeMode::automatic && holds(part)) return part;
  part.input = chain_.in_bytes(stage.begin, stage.end);  // from which it runs again
  StageBytes whole = part;
  whole.again = std::exchange(whole.saved, 0);
  switch (in_flight_.recompute) {
    case RecomputeMode::never:  // above
    case RecomputeMode::always: return whole;
    case RecomputeMode::except_last:  // the last micro-batch keeps all beside the one that runs again
      whole.again *= std::min(part.in_flight, 2);
      return whole;
    case RecomputeMode::automatic: break;
  }
  if (in_flight_.units == nullptr) {
    part.saved = 0;
    return part;
  }
  StageBytes layers = part;
  const Released most = in_flight_.units->release_most(stage.begin, stage.end, part.input, part.in_flight);
  layers.saved -= most.bytes;
  layers.again = most.again;
  layers.workspace = std::max(part.workspace, most.workspace);
  return layers.total() < whole.total() ? layers : whole;
}

std::vector<StageBytes> StageMemory::stages(const Partition& partition) const {
  std::vector<StageBytes> result(partition.size());
  Behind behind;
  for (std::size_t s = partition.size(); s-- > 0;) {
    const StageRange& stage = partition[s];
    behind.demand = demand(stage.replicas, behind);
    result[s] = bytes(stage, window(stage, behind.demand));
    behind.devices += stage.replicas;
    ++behind.stages;
  }
  return result;
}

bool StageMemory::fits(const Partition& partition) const {
  const std::vector<StageBytes> parts = stages(partition);
  return std::all_of(parts.begin(), parts.end(), [&](const StageBytes& part) { return holds(part); });
}

std::int64_t StageMemory::peak(const Partition& partition) const {
  std::int64_t most = 0;
  for (const StageBytes& part : stages(partition)) most = std::max(most, part.total());
  return most + limit_.context;
}

StageMemory StageMemory::with_limit(std::int64_t bytes) const {
  MemoryLimit limit = limit_;
  limit.bytes = bytes;
  return {chain_, in_flight_, limit};
}

}  // namespace pp::plan
