#include "libplan/cost/stage_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr int kEndless = 1 << 20;  ///< a stream: no step ends the window

constexpr std::int64_t kMostInFlight = 1
                                       << 30;  ///< more are as good as that many, and one more is still an int

int ceil_div(int a, int b) { return (a + b - 1) / b; }

int over_replicas(int replicas, std::int64_t each) {
  return static_cast<int>(std::min(replicas * each, kMostInFlight));
}

/// Of a stage that runs all again but the last micro-batch, which keeps everything on the replica that has it:
/// the peak is when that one stands beside one that runs again, unless earlier ones are larger. `whole`:
/// without it.
StageBytes with_last(const StageBytes& whole, const MicroBatches& batch, int replicas) {
  const int replica = (batch.count - 1) % replicas;  // of the last, replica + replicas, ..
  const int count = ceil_div(batch.count - replica, replicas);
  const int full = ceil_div(std::max(0, batch.full - replica), replicas);
  const auto of = [&](int i, std::int64_t bytes) {
    return i < full ? bytes : std::llround(batch.bytes * static_cast<double>(bytes));
  };
  StageBytes end = whole;
  end.in_flight = std::min(whole.in_flight, count);
  const int first = count - end.in_flight;
  end.smaller = batch.equal() ? 0 : end.in_flight - std::max(0, full - first);
  end.again = of(count - 1, whole.again);
  if (first < count - 1) end.again += of(first, whole.again);
  end.workspace = of(first, whole.workspace);
  return end.total() > whole.total() ? end : whole;
}

}  // namespace

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
  const StageBytes part = stage_bytes(least_contents(stage), keeping(stage.replicas, window, false));
  return part.total() - part.smaller + limit_.context - limit_.bytes;  // which were rounded one by one
}

bool StageMemory::fits_at_least(int begin, int end, int replicas, int later) const {
  StageBytes part = stage_bytes(least_contents({begin, end, replicas}),
                                keeping(replicas, least_window(replicas, later), false));
  if (in_flight_.recompute != RecomputeMode::automatic) part.workspace = chain_.transient(begin, end);
  switch (in_flight_.recompute) {
    case RecomputeMode::never: break;
    case RecomputeMode::except_last:
    case RecomputeMode::always: part.again = std::exchange(part.saved, 0); break;
    case RecomputeMode::automatic: part.saved = 0; break;
  }
  return holds(at_peak(part));
}

int StageMemory::demand(int replicas, const Behind& behind) const {
  if (in_flight_.all) return over_replicas(replicas, micro_batches_of(replicas));
  switch (in_flight_.rule) {
    case WindowRule::published: return over_replicas(replicas, ceil_div(behind.devices + replicas, replicas));
    case WindowRule::explicit_list:
      return over_replicas(replicas, in_flight_.windows[in_flight_.windows.size() - 1 - at(behind.stages)]);
    case WindowRule::win:
    case WindowRule::wide: break;
  }
  return over_replicas(replicas, 1 + ceil_div(behind.demand, replicas));
}

int StageMemory::window(const StageRange& stage, int demand) const {
  int window = demand / stage.replicas;
  if (in_flight_.rule == WindowRule::wide) window = 2 * window - 1;
  return std::min(window, micro_batches_of(stage.replicas));
}

bool StageMemory::fits(const StageRange& stage, int demand) const {
  constexpr std::size_t kRemembered = 1 << 17, kLeast = 64;  // of all rows, 2 MiB; of one
  known_.resize(at(chain_.size()));
  std::vector<Windows>& row = known_[at(stage.begin)];
  row.resize(std::max(kLeast, std::bit_floor(kRemembered / known_.size())));
  // Replicas differ in which micro-batches they hold, and in their share of the optimizer's state.
  Windows& known = row[at(stage.end + 61 * stage.replicas) % row.size()];
  if (known.end != stage.end || known.replicas != stage.replicas)
    known = {.end = stage.end, .replicas = stage.replicas};
  const int wanted = window(stage, demand);
  if (wanted > known.fitting && wanted < known.too_wide)
    (fits_window(stage, wanted) ? known.fitting : known.too_wide) = wanted;
  return wanted <= known.fitting;
}

bool StageMemory::fits_window(const StageRange& stage, int window) const {
  if (in_flight_.recompute != RecomputeMode::automatic) return holds(bytes(stage, window));
  if (holds(at_peak(stage_bytes(contents(stage), keeping(stage.replicas, window, false))))) return true;
  StageBytes part = stage_bytes(contents(stage), keeping(stage.replicas, window, true));
  part.again = std::exchange(part.saved, 0);
  if (holds(at_peak(part))) return true;  // the whole stage
  std::swap(part.saved, part.again);
  StageBytes least = part;
  least.saved = 0;
  return holds(least) && holds(at_peak(bytes_of_layers_again(stage, part)));
}

StageContents StageMemory::least_contents(const StageRange& stage) const {
  const LayerSums &front = chain_.upto[at(stage.begin)], &back = chain_.upto[at(stage.end)];
  return {.parameters = back.parameters - front.parameters,
          .buffers = back.buffers - front.buffers,
          .frozen = back.frozen - front.frozen,
          .gradients = back.gradients - front.gradients,
          .experts = back.experts - front.experts,
          .saved = back.saved - front.saved};  // no more than saved and input together
}

StageContents StageMemory::contents(const StageRange& stage) const {
  const auto& [begin, end, replicas] = stage;
  StageContents all = least_contents(stage);
  all.transient = chain_.transient(begin, end);
  all.entering = chain_.entering_bytes(begin, end);
  all.received = chain_.in_bytes(begin, end);
  all.kept = chain_.kept_bytes(begin, end);
  all.sent = chain_.out_bytes(begin, end);
  all.messages = message_bytes(limit_.in, all.received, 0) + message_bytes(limit_.out, 0, all.sent);
  return all;
}

StageKeeping StageMemory::keeping(int replicas, int window, bool runs_again) const {
  return {.versions = versions_kept(in_flight_.policy, window, in_flight_.stages, in_flight_.per_update),
          .in_flight = window,
          .smaller = smaller_of(replicas, window),
          .scale = in_flight_.batch.bytes,
          .optimizer = chain_.optimizer,
          .sharers = in_flight_.sharded ? replicas * in_flight_.pipelines : 0,
          .runs_again = runs_again};
}

int StageMemory::smaller_of(int replicas, int window) const {
  const MicroBatches& batch = in_flight_.batch;
  if (batch.equal()) return 0;
  if (in_flight_.micro_batches != 0) return std::max(0, window - ceil_div(batch.full, replicas));
  const auto [found, fresh] = smaller_.try_emplace({replicas, window}, window);
  for (int first = 0; fresh && first < batch.count; ++first) {  // of a stream's, any may stand in front
    int smaller = 0;
    for (std::int64_t i = 0; i < window; ++i) smaller += (first + i * replicas) % batch.count >= batch.full;
    found->second = std::min(found->second, smaller);
  }
  return found->second;
}

double StageMemory::held(int replicas, int window) const {
  const int smaller = smaller_of(replicas, window);
  return window - smaller + smaller * in_flight_.batch.bytes;
}

StageBytes StageMemory::bytes(const StageRange& stage, int window) const {
  const StageBytes part = at_peak(stage_bytes(contents(stage), keeping(stage.replicas, window, false)));
  const RecomputeMode mode = in_flight_.recompute;
  const bool only_last = mode == RecomputeMode::except_last && in_flight_.micro_batches == 1;
  const bool keeps_all =
      mode == RecomputeMode::never || only_last || (mode == RecomputeMode::automatic && holds(part));
  return keeps_all ? part : bytes_again(stage, window);
}

StageBytes StageMemory::bytes_again(const StageRange& stage, int window) const {
  const StageBytes part = stage_bytes(contents(stage), keeping(stage.replicas, window, true));
  StageBytes whole = part;
  whole.again = std::exchange(whole.saved, 0);
  if (in_flight_.recompute == RecomputeMode::except_last && !in_flight_.last_first)
    return with_last(whole, in_flight_.batch, stage.replicas);
  whole = at_peak(whole);
  if (in_flight_.recompute != RecomputeMode::automatic) return whole;
  const StageBytes layers = at_peak(bytes_of_layers_again(stage, part));
  return layers.total() < whole.total() ? layers : whole;
}

// Either a smaller micro-batch runs back while all are held, or a large one when those are gone.
StageBytes StageMemory::at_peak(StageBytes part) const {
  if (!in_flight_.last_first || part.smaller == 0) return part;
  StageBytes large = part;
  large.in_flight -= std::exchange(large.smaller, 0);
  for (std::int64_t* bytes : {&part.again, &part.workspace})
    *bytes = std::llround(part.scale * static_cast<double>(*bytes));
  return large.in_flight > 0 && large.total() > part.total() ? large : part;
}

StageBytes StageMemory::bytes_of_layers_again(const StageRange& stage, StageBytes part) const {
  if (in_flight_.units == nullptr) {
    part.saved = 0;
    return part;
  }
  const Released most =
      in_flight_.units->release_most(stage.begin, stage.end, part.input, held(stage.replicas, part.in_flight));
  part.saved -= most.bytes;
  part.again = most.again;
  part.workspace = std::max(part.workspace, most.workspace);
  return part;
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
  part.gradients = whole_bytes(keeping.optimizer.gradient_ratio * static_cast<double>(contents.gradients));
  part.optimizer =
      whole_bytes(keeping.optimizer.state_ratio *
                  keeping.optimizer.held({static_cast<double>(trained), static_cast<double>(contents.experts)},
                                         keeping.sharers));
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

RecomputeTime::RecomputeTime(const Chain& chain, const StageMemory& memory) : chain_(chain), memory_(memory) {
  const InFlight& in_flight = memory.in_flight();
  const bool layers = memory.limited() && in_flight.units != nullptr;
  if (in_flight.recompute == RecomputeMode::automatic && layers) make_classes();
}

void RecomputeTime::make_classes() {
  constexpr std::size_t kClasses = 16;
  struct Layer {
    double rate;
    std::int64_t saved;
    int position;
  };
  std::vector<Layer> layers;
  for (int p = 0; p < chain_.size(); ++p) {
    const bool last = p + 1 == chain_.size();
    LayerSums layer = chain_.between(p, p + 1);
    if (last) layer -= chain_.loss;
    const auto [saved, forward] = std::pair(layer.saved, layer.times.forward);
    if (saved > 0) layers.push_back({std::max(0.0, forward) / static_cast<double>(saved), saved, p});
  }
  std::ranges::stable_sort(layers, {}, &Layer::rate);
  const std::size_t classes = std::min(kClasses, layers.size());
  for (std::size_t c = 0; c < classes; ++c) {
    const std::size_t first = c * layers.size() / classes;
    const std::size_t last = (c + 1) * layers.size() / classes;
    Class& one = classes_.emplace_back();
    one.seconds_per_byte = layers[first].rate;
    one.saved.assign(at(chain_.size()) + 1, 0);
    for (std::size_t i = first; i < last; ++i) {
      one.saved[at(layers[i].position) + 1] = layers[i].saved;
    }
    for (std::size_t k = 1; k < one.saved.size(); ++k) one.saved[k] += one.saved[k - 1];
  }
}

double RecomputeTime::again(double count, double one) const {
  const bool but_last = memory_.in_flight().recompute == RecomputeMode::except_last;
  return but_last ? std::max(0.0, count - one) : count;
}

double RecomputeTime::seconds(int begin, int end, int replicas) const {
  const RecomputeMode mode = memory_.in_flight().recompute;
  if (mode == RecomputeMode::never) return 0;
  if (mode != RecomputeMode::automatic) return chain_.stage_forward(begin, end);
  if (classes_.empty()) return 0;
  const int window = memory_.least_window(replicas, 0);
  auto excess = static_cast<double>(memory_.least_excess({begin, end, replicas}, window));
  if (excess <= 0) return 0;
  const double held = memory_.held(replicas, window);
  double seconds = 0;
  for (const Class& layers : classes_) {
    const double given =
        std::min(excess, held * static_cast<double>(layers.saved[at(end)] - layers.saved[at(begin)]));
    seconds += given / held * layers.seconds_per_byte;
    excess -= given;
    if (excess <= 0) break;
  }
  return seconds;
}

}  // namespace pp::plan
