#include "librun/wiring/channels.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

// Micro-batches after which nothing new happens: past the prologues, then two rounds of all workers together;
// where these meet late, a part of them.
std::int64_t settled(std::span<const plan::Stream> streams) {
  constexpr std::int64_t kMost = 10'000;
  std::int64_t last = 0, round = 1;
  for (const plan::Stream& stream : streams) {
    for (const plan::Program* part : {&stream.prologue, &stream.body}) {
      for (const plan::Op& op : *part) last = std::max<std::int64_t>(last, op.micro_batch);
    }
    const std::int64_t joint = std::lcm(round, std::int64_t{stream.period});
    round = joint <= kMost ? joint : std::max<std::int64_t>(round, stream.period);
  }
  return last + 1 + 2 * round;
}

// visit(op, micro-batch, place in the stream) for what a worker does with the first `count` micro-batches.
template <class Visit>
void for_each_op(const plan::Stream& stream, std::int64_t count, Visit&& visit) {
  plan::StreamWalk walk(stream, count);
  while (const std::optional<plan::Op> op = walk.next()) {
    if (plan::has_micro_batch(op->kind)) visit(*op, op->micro_batch + walk.shift(), walk.place());
  }
}

// Most micro-batches that a worker has in flight.
int peak(const plan::Stream& stream, std::int64_t count) {
  int now = 0, most = 1;
  for_each_op(stream, count, [&](const plan::Op& op, std::int64_t, std::size_t) {
    if (op.kind == plan::OpKind::forward) most = std::max(most, ++now);
    if (plan::completes_backward(op.kind)) --now;
  });
  return most;
}

// Who has micro-batches of both stages: turns that are i and j steps into their rounds meet where i and j are
// equal modulo the greatest common divisor of the rounds.
std::set<std::pair<WorkerId, WorkerId>> pairs(const std::vector<WorkerId>& a, const std::vector<WorkerId>& b) {
  const std::size_t divisor = std::gcd(a.size(), b.size());
  std::set<std::pair<WorkerId, WorkerId>> all;
  for (std::size_t first = 0; first < divisor; ++first) {
    std::set<WorkerId> of_a, of_b;
    for (std::size_t i = first; i < a.size(); i += divisor) of_a.insert(a[i]);
    for (std::size_t i = first; i < b.size(); i += divisor) of_b.insert(b[i]);
    for (const WorkerId one : of_a) {
      for (const WorkerId other : of_b) all.emplace(one, other);
    }
  }
  return all;
}

// The micro-batches that go over one channel, as its ends list them.
struct Traffic {
  std::vector<std::int64_t> sent, received;
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::data, message); }

// Throws for a message that only one end knows.
void check_complete(const Channel& channel, Traffic traffic) {
  std::ranges::sort(traffic.sent);
  std::ranges::sort(traffic.received);
  const auto [sent, received] = std::ranges::mismatch(traffic.sent, traffic.received);
  const bool sends = sent != traffic.sent.end(), receives = received != traffic.received.end();
  const std::string receiver = "worker " + std::to_string(number(channel.to));
  if (receives && (!sends || *received < *sent))
    refuse(receiver + " waits for " + describe(channel, *received) + ", which does not send it");
  if (sends) refuse(describe(channel, *sent) + " is sent to " + receiver + ", which does not receive it");
}

// A message that is received before others that are sent before it passes only when all of them have room.
void fit(Channel& channel, const Traffic& traffic) {
  if (traffic.sent == traffic.received) return;
  channel.in_order = false;
  for (std::size_t i = 0; i < traffic.received.size(); ++i) {
    const auto place = std::ranges::find(traffic.sent, traffic.received[i]) - traffic.sent.begin();
    channel.window = std::max(channel.window, static_cast<int>(place - static_cast<std::ptrdiff_t>(i)) + 1);
  }
}

}  // namespace

Channels::Channels(const plan::Plan& plan, const ResolvedModel& model, std::span<const StageWiring> wiring,
                   std::span<const plan::Stream> training, std::span<const plan::Stream> evaluation,
                   const ChannelOptions& options)
    : ports_(wiring.size()) {
  connect(wiring);
  const Owners owners(training, static_cast<int>(wiring.size()));
  const Owners backward_owners =
      options.swapped ? Owners(training, static_cast<int>(wiring.size()), Owners::Of::backwards) : owners;
  const Owners forward_owners(evaluation, static_cast<int>(wiring.size()));
  const std::int64_t count = settled(training);
  std::vector<int> peaks;
  for (const plan::Stream& stream : training) peaks.push_back(peak(stream, count));
  for (int e = 0; e < static_cast<int>(edges_.size()); ++e) {
    const Edge& edge = edges_[static_cast<std::size_t>(e)];
    const auto layer = static_cast<std::size_t>(edge.source.index);
    const TensorType& type = model.layers[layer].outputs[static_cast<std::size_t>(edge.source.output)];
    Channel pattern{.layer = edge.source.index,
                    .output = edge.source.output,
                    .consumer = edge.consumer,
                    .shape = type.shape,
                    .dtype = type.dtype,
                    .format = plan.training.memory_format,
                    .per_step = options.step_micro_batches};
    if (is_floating(type.dtype))
      pattern.dtype = options.autocast ? std::nullopt : std::optional(plan.training.dtype);
    add(Direction::activation, e, owners, pattern);
    if (edge.gradient) add(Direction::gradient, e, backward_owners, pattern);
    pattern.per_step = options.evaluation_micro_batches;
    add(Direction::evaluation, e, forward_owners, pattern);
  }
  for (Channel& channel : channels_)
    channel.window = 1 + 2 * std::max(peaks[index(channel.from)], peaks[index(channel.to)]);
  if (options.swapped) {
    const int step = plan.training.micro_batches;
    for (Channel& channel : channels_) channel.window = std::max(channel.window, 1 + 2 * step);
  }
  follow(training, Direction::activation, owners, backward_owners, options.gradient_lag);
  follow(evaluation, Direction::evaluation, forward_owners, forward_owners, 0);
}

void Channels::connect(std::span<const StageWiring> wiring) {
  for (std::size_t s = 0; s < wiring.size(); ++s) {
    const StageId producer{static_cast<int>(s)};
    for (std::size_t k = 0; k < wiring[s].outputs.size(); ++k) {
      const StageOutput& output = wiring[s].outputs[k];
      for (const StageOutput::Consumer& consumer : output.consumers) {
        const auto edge = static_cast<int>(edges_.size());
        const Port there{edge, k, consumer.stage};
        ports_[s].outputs.push_back(there);
        if (consumer.gradient) ports_[s].output_gradients.push_back(there);
        edges_.push_back({producer, consumer.stage, output.source, consumer.gradient, {}});
      }
    }
  }
  for (std::size_t s = 0; s < wiring.size(); ++s) {
    for (std::size_t i = 0; i < wiring[s].inputs.size(); ++i) {
      const StageInput& input = wiring[s].inputs[i];
      if (input.producer < 0) continue;
      const auto edge = std::ranges::find_if(edges_, [&](const Edge& e) {
        return e.consumer == StageId{static_cast<int>(s)} && e.source == input.source;
      });
      const Port here{static_cast<int>(edge - edges_.begin()), i, edge->producer};
      ports_[s].inputs.push_back(here);
      if (input.gradient) ports_[s].input_gradients.push_back(here);
    }
  }
}

void Channels::add(Direction direction, int edge, const Owners& owners, const Channel& pattern) {
  Edge& place = edges_[static_cast<std::size_t>(edge)];
  for (const auto& [producer, consumer] : pairs(owners.turns(place.producer), owners.turns(place.consumer))) {
    const bool forwards = direction != Direction::gradient;
    Channel channel = pattern;
    channel.direction = direction;
    channel.from = forwards ? producer : consumer;
    channel.to = forwards ? consumer : producer;
    place.channels[static_cast<std::size_t>(direction)].push_back(static_cast<int>(channels_.size()));
    channels_.push_back(std::move(channel));
  }
}

int Channels::find(Direction direction, int edge, WorkerId from, WorkerId to) const {
  const Edge& place = edges_[static_cast<std::size_t>(edge)];
  for (const int channel : place.channels[static_cast<std::size_t>(direction)]) {
    const Channel& found = channels_[static_cast<std::size_t>(channel)];
    if (found.from == from && found.to == to) return channel;
  }
  refuse("worker " + std::to_string(number(from)) + " has nothing to send to worker " +
         std::to_string(number(to)) + " between stages " + std::to_string(number(place.producer)) + " and " +
         std::to_string(number(place.consumer)));
}

// Where gradients lag, the last ones find no backward: who would take them receives and drops them.
void Channels::follow(std::span<const plan::Stream> streams, Direction forwards, const Owners& forward_owners,
                      const Owners& backward_owners, int gradient_lag) {
  std::vector<Traffic> traffic(channels_.size());
  std::map<std::pair<WorkerId, WorkerId>, BothEnds> between;
  const std::int64_t count = settled(streams);
  for (std::size_t w = 0; w < streams.size(); ++w) {
    const WorkerId me{static_cast<int>(w)};
    const plan::InstructionLists lists =
        lower(streams[w], {.ports = ports_, .forwards = forwards, .gradient_lag = gradient_lag});
    for_each_op(streams[w], count, [&](const plan::Op&, std::int64_t micro_batch, std::size_t place) {
      for (const plan::Instruction& one : lists[place]) {
        const bool gradient = one.direction == Direction::gradient;
        for (const Port& port : one.ports) {
          const WorkerId peer = (gradient ? backward_owners : forward_owners).of(port.peer, micro_batch);
          if (one.kind == plan::InstructionKind::receive) {
            const int channel = find(one.direction, port.edge, peer, me);
            traffic[static_cast<std::size_t>(channel)].received.push_back(micro_batch - one.lag);
            between[{peer, me}].received.emplace_back(channel, micro_batch - one.lag);
          } else if (!gradient || micro_batch + gradient_lag < count) {
            const int channel = find(one.direction, port.edge, me, peer);
            traffic[static_cast<std::size_t>(channel)].sent.push_back(micro_batch);
            between[{me, peer}].sent.emplace_back(channel, micro_batch);
          }
        }
      }
    });
  }
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    check_complete(channels_[c], traffic[c]);
    fit(channels_[c], traffic[c]);
  }
  for (const auto& [workers, ends] : between) find_lanes(ends);
}

// Each channel joins the first lane whose order stays one at both ends. A type that the first message tells
// (autocast) is known to the receiver only when that has come, so such a channel has a lane of its own.
void Channels::find_lanes(const BothEnds& ends) {
  std::set<int> all;
  for (const auto& [channel, micro_batch] : ends.sent) all.insert(channel);
  std::vector<std::set<int>> lanes;
  const auto is_open = [&](int channel) { return !channels_[static_cast<std::size_t>(channel)].dtype; };
  for (const int channel : all) {
    const auto may_join = [&](std::set<int> lane) {
      if (is_open(channel) || is_open(*lane.begin())) return false;
      lane.insert(channel);
      const auto in_lane = [&](const auto& message) { return lane.contains(message.first); };
      return std::ranges::equal(ends.sent | std::views::filter(in_lane),
                                ends.received | std::views::filter(in_lane));
    };
    auto lane = std::ranges::find_if(lanes, may_join);
    if (lane == lanes.end()) lane = lanes.emplace(lane);
    lane->insert(channel);
    channels_[static_cast<std::size_t>(channel)].lane = static_cast<int>(lane - lanes.begin());
  }
}

}  // namespace pp::run
