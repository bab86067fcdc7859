#include "librun/transport/rank_transport.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/ops.h"
#include "librun/transport/group_view.h"
#include "librun/transport/peers.h"
#include "librun/transport/rank_sums.h"

namespace pp::run {

namespace {

struct RankMessage {
  std::int64_t number = 0;
  at::Tensor tensor;
  std::unique_ptr<Posted> posted;
};

// What one end of a channel has under way; only its worker looks.
struct RankEnd {
  std::deque<RankMessage> messages;
};

class RankTransport final : public Transport {
 public:
  RankTransport(Coordinator& coordinator, std::vector<Channel> channels, const Placement& placement,
                Peers& peers, RankTensors tensors)
      : coordinator_(coordinator),
        channels_(std::move(channels)),
        placement_(placement),
        peers_(peers),
        tensors_(tensors),
        local_(make_in_process_transport(coordinator, channels_)),
        ends_(channels_.size()),
        tags_(channels_.empty() ? 1 : (std::int64_t{peers.largest_tag()} + 1) / std::ssize(channels_)) {
    for (const Channel& channel : channels_) {
      const bool trains = channel.direction != Direction::evaluation;
      if (tags_ < (trains ? 3 * channel.per_step : std::int64_t{4} * channel.window)) refuse();
    }
  }

  // What a failed run leaves under way may still be written by the library.
  ~RankTransport() override {
    for (RankEnd& end : ends_) {
      std::erase_if(end.messages, [](RankMessage& message) { return message.posted->done(); });
    }
    if (std::ranges::any_of(ends_, [](const RankEnd& end) { return !end.messages.empty(); }))
      leave_to_library(std::make_shared<std::vector<RankEnd>>(std::move(ends_)));
  }

  void expect(int channel, std::int64_t number, int rows) override {
    if (stays(channel)) return local_->expect(channel, number, rows);
    const Channel& of = channels_[static_cast<std::size_t>(channel)];
    std::vector<std::int64_t> sizes{rows};
    sizes.insert(sizes.end(), of.shape.begin(), of.shape.end());
    const at::ScalarType type = of.dtype ? model::scalar_type(*of.dtype) : at::kFloat;
    // On its way it counts at nobody.
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    RankMessage message{number, profile::host_room(sizes, type, format_of(of), tensors_.pinned), nullptr};
    message.posted = peers_.receive(address(channel, number, of.from), bytes_of(message.tensor));
    end(channel).messages.push_back(std::move(message));
  }

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    if (stays(channel)) return local_->send(channel, number, std::move(tensor));
    const Channel& of = channels_[static_cast<std::size_t>(channel)];
    std::deque<RankMessage>& leaving = end(channel).messages;
    const auto has_room = [&] {
      std::erase_if(leaving, [](RankMessage& message) { return message.posted->done(); });
      return std::ssize(leaving) < of.window;
    };
    coordinator_.poll(of.from, has_room, [&] {
      return "worker " + std::to_string(pp::number(of.to)) + " to make room for " + describe(of, number);
    });
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    RankMessage message{number, profile::brought_to_host(tensor, format_of(of)), nullptr};
    tensor.reset();
    const std::span<const std::byte> bytes = bytes_of(message.tensor);
    const std::size_t room =
        of.dtype ? bytes.size() : sizeof(float) * static_cast<std::size_t>(message.tensor.numel());
    // Training is held back by the driver, which lets steps begin; an evaluation by its windows alone.
    const auto sent = of.direction == Direction::evaluation ? Peers::Sent::taken : Peers::Sent::gone;
    message.posted = peers_.send(address(channel, number, of.to), bytes, room, sent);
    leaving.push_back(std::move(message));
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    if (stays(channel)) return local_->receive(channel, number);
    const Channel& of = channels_[static_cast<std::size_t>(channel)];
    std::deque<RankMessage>& coming = end(channel).messages;
    const auto found = std::ranges::find(coming, number, &RankMessage::number);
    if (found == coming.end()) throw Error(ErrorKind::internal, describe(of, number) + " was not expected");
    coordinator_.poll(
        of.to, [&] { return found->posted->done(); }, [&] { return describe(of, number); });
    at::Tensor tensor = typed(*found, of);
    coming.erase(found);
    return tensor;
  }

 private:
  static at::MemoryFormat format_of(const Channel& channel) {
    return model::memory_format(channel.format, 1 + std::ssize(channel.shape));
  }

  [[noreturn]] void refuse() const {
    throw Error(ErrorKind::run, "the message-passing library has tags up to " +
                                    std::to_string(peers_.largest_tag()) + ", too few for " +
                                    std::to_string(channels_.size()) +
                                    " channels between workers; plan fewer stages or micro-batches, or use "
                                    "another library");
  }

  bool stays(int channel) const {
    const Channel& of = channels_[static_cast<std::size_t>(channel)];
    return placement_.of(of.from) == placement_.of(of.to);
  }

  RankEnd& end(int channel) { return ends_[static_cast<std::size_t>(channel)]; }

  // Messages of a channel that are under way together have numbers closer than `tags_`.
  Peers::Address address(int channel, std::int64_t number, WorkerId other) const {
    const std::int64_t tag = channel + std::ssize(channels_) * (number % tags_);
    return {Peers::Lane::tensors, placement_.of(other), static_cast<int>(tag)};
  }

  at::Tensor typed(RankMessage& message, const Channel& of) const {
    const std::size_t bytes = message.posted->bytes();
    if (bytes == message.tensor.nbytes()) return std::move(message.tensor);
    const bool half = !of.dtype && tensors_.autocast && 2 * bytes == message.tensor.nbytes();
    if (!half) {
      throw Error(ErrorKind::internal, describe(of, message.number) + ": " + std::to_string(bytes) +
                                           " bytes came, there was room for " +
                                           std::to_string(message.tensor.nbytes()));
    }
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    at::Tensor tensor =
        profile::host_room(message.tensor.sizes(), *tensors_.autocast, format_of(of), tensors_.pinned);
    std::ranges::copy(bytes_of(message.tensor).first(bytes), bytes_of(tensor).begin());
    return tensor;
  }

  Coordinator& coordinator_;
  std::vector<Channel> channels_;
  const Placement& placement_;
  Peers& peers_;
  RankTensors tensors_;
  std::unique_ptr<Transport> local_;
  std::vector<RankEnd> ends_;  ///< per channel: the end that is here
  std::int64_t tags_;          ///< of a channel
};

class RankCollectives final : public Collectives {
 public:
  RankCollectives(Coordinator& coordinator, std::vector<Group> groups, const Placement& placement, Peers& peers,
                  std::size_t fast)
      : coordinator_(coordinator),
        placement_(placement),
        peers_(peers),
        groups_(std::move(groups)),
        local_(make_in_process_collectives(coordinator, groups_)) {
    std::int64_t tags = 0;
    for (const Group& group : groups_) {
      first_tags_.push_back(static_cast<int>(tags));
      if (!within(group)) tags += GroupView::tags_of(group);
      if (tags > peers.largest_tag()) {
        throw Error(ErrorKind::run,
                    "the message-passing library has tags up to " + std::to_string(peers.largest_tag()) +
                        ", too few for the groups of this plan's replicas; use another library");
      }
    }
    library_.resize(groups_.size());
    for (std::size_t g = 0; g < fast; ++g) library_[g] = join(groups_[g]);
  }

  Seconds sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (within(groups_[group])) return local_->sum(group, me, mine);
    if (!mine.defined()) return Seconds(0);
    return complete(*begin_sum(group, me, mine));
  }

  bool overlaps(std::size_t group) const override { return !within(groups_[group]); }

  std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    const bool known = mine.scalar_type() == at::kFloat || mine.scalar_type() == at::kDouble;
    if (known && library_[group])
      return begin_library_sum(coordinator_, view(group, me), *library_[group], mine);
    return begin_slice_sum(coordinator_, view(group, me), mine);
  }

  Seconds reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (within(groups_[group])) return local_->reduce(group, me, mine, slices);
    return complete(*begin_reduce(group, me, mine, slices));
  }

  std::unique_ptr<PendingSum> begin_reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                                           std::span<const Slice> slices) override {
    return begin_slice_reduce(coordinator_, view(group, me), mine, slices);
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (within(groups_[group])) return local_->spread(group, me, mine, slices);
    spread_slices(coordinator_, view(group, me), mine, slices);
    return Seconds(0);
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    if (within(groups_[group])) return local_->gather(group, me, std::move(mine), use);
    use(all_gather(coordinator_, view(group, me), std::move(mine)));
  }

 private:
  bool within(const Group& group) const {
    return std::ranges::all_of(group,
                               [&](WorkerId w) { return placement_.of(w) == placement_.of(group.front()); });
  }

  std::optional<int> join(const Group& group) {
    std::vector<int> ranks;
    for (const WorkerId worker : group) ranks.push_back(placement_.of(worker));
    const std::set<int> different(ranks.begin(), ranks.end());
    if (ranks.size() < 2 || different.size() < ranks.size() || !different.contains(peers_.rank()))
      return std::nullopt;
    return peers_.join(ranks);
  }

  GroupView view(std::size_t group, WorkerId me) const {
    return {groups_[group], me, first_tags_[group], placement_, peers_};
  }

  Coordinator& coordinator_;
  const Placement& placement_;
  Peers& peers_;
  std::vector<Group> groups_;
  std::unique_ptr<Collectives> local_;
  std::vector<int> first_tags_;              ///< per group
  std::vector<std::optional<int>> library_;  ///< per group: the library's number of it
};

}  // namespace

std::unique_ptr<Transport> make_rank_transport(Coordinator& coordinator, std::vector<Channel> channels,
                                               const Placement& placement, Peers& peers, RankTensors tensors) {
  return std::make_unique<RankTransport>(coordinator, std::move(channels), placement, peers, tensors);
}

std::unique_ptr<Collectives> make_rank_collectives(Coordinator& coordinator, std::vector<Group> groups,
                                                   const Placement& placement, Peers& peers, std::size_t fast) {
  return std::make_unique<RankCollectives>(coordinator, std::move(groups), placement, peers, fast);
}

}  // namespace pp::run
