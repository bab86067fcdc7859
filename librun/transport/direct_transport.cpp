// Boundary tensors and sums over GPUs of several ranks.
#include "librun/transport/direct_transport.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/queued_work.h"
#include "libprofile/model/ops.h"

namespace pp::run {

namespace {

// One end of a channel; only its worker looks.
struct DirectEnd {
  struct Message {
    std::int64_t number = 0;
    int rows = 0;
    at::Tensor tensor = {};  ///< undefined: not asked for, because the type is not known yet
    std::unique_ptr<DeviceGroup::Mark> mark = {};
  };
  std::optional<at::ScalarType> type;
  std::optional<std::int64_t> first;  ///< goes the other way and tells the type
  std::deque<Message> messages;       ///< under way
};

class DirectTransport final : public Transport {
 public:
  DirectTransport(Coordinator& coordinator, std::unique_ptr<Transport> other, std::vector<Channel> channels,
                  DeviceGroups groups)
      : coordinator_(coordinator),
        other_(std::move(other)),
        channels_(std::move(channels)),
        groups_(std::move(groups)),
        ends_(channels_.size()) {
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      if (channels_[c].dtype) ends_[c].type = model::scalar_type(*channels_[c].dtype);
    }
  }

  void expect(int channel, std::int64_t number, int rows) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c] || goes_first(end, number)) return other_->expect(channel, number, rows);
    end.messages.push_back({number, rows});
    if (end.type) ask(c, end.messages.back());
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c]) return other_->receive(channel, number);
    if (end.first == number) {
      at::Tensor tensor = other_->receive(channel, number);
      end.type = tensor.scalar_type();
      for (DirectEnd::Message& message : end.messages) ask(c, message);
      return tensor;
    }
    if (end.messages.empty() || end.messages.front().number != number)
      throw Error(ErrorKind::internal, describe(channels_[c], number) + " was not expected");
    DirectEnd::Message message = std::move(end.messages.front());
    end.messages.pop_front();
    message.mark->hold_back();
    return std::move(message.tensor);
  }

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c]) return other_->send(channel, number, std::move(tensor));
    if (goes_first(end, number)) {
      end.type = tensor.scalar_type();
      return other_->send(channel, number, std::move(tensor));
    }
    const Channel& of = channels_[c];
    const auto has_room = [&] {
      while (!end.messages.empty() && end.messages.front().mark->done()) end.messages.pop_front();
      return std::ssize(end.messages) < of.window;
    };
    coordinator_.poll(of.from, has_room, [&] {
      return "worker " + std::to_string(pp::number(of.to)) + " to make room for " + describe(of, number);
    });
    groups_[c]->send(1, tensor.contiguous(format_of(c)));
    end.messages.push_back({.number = number, .mark = groups_[c]->mark()});
  }

 private:
  static bool goes_first(DirectEnd& end, std::int64_t number) {
    if (end.type || end.first) return false;
    end.first = number;
    return true;
  }

  at::MemoryFormat format_of(std::size_t c) const {
    return model::memory_format(channels_[c].format, 1 + std::ssize(channels_[c].shape));
  }

  void ask(std::size_t c, DirectEnd::Message& message) {
    std::vector<std::int64_t> sizes{message.rows};
    sizes.insert(sizes.end(), channels_[c].shape.begin(), channels_[c].shape.end());
    const profile::ChargeMemory charged{profile::MemoryAccount()};  // on its way it counts at nobody
    message.tensor =
        at::empty(sizes, at::TensorOptions(*ends_[c].type).device(groups_[c]->device()), format_of(c));
    groups_[c]->receive(0, message.tensor);
    message.mark = groups_[c]->mark();
  }

  Coordinator& coordinator_;
  std::unique_ptr<Transport> other_;
  std::vector<Channel> channels_;
  DeviceGroups groups_;
  std::vector<DirectEnd> ends_;  ///< per channel: the end that is here
};

// When the calling thread's work on a device has come so far.
class Moment {
 public:
  explicit Moment(const at::Device& device) : event_(profile::make_event(device, profile::Timing::on)) {
    if (event_) event_->record();
  }
  /// Waits until it is reached.
  Seconds since(const Moment& earlier) const {
    if (!event_) return host_ - earlier.host_;
    event_->wait();
    return event_->since(*earlier.event_);
  }

 private:
  std::unique_ptr<profile::DeviceEvent> event_;  ///< null on a CPU, whose work is done by now
  Coordinator::Clock::time_point host_ = Coordinator::Clock::now();
};

// All of a sum goes into the group's stream when it begins, for all members in the same order: nothing is left
// for the members to do.
class DirectSum : public PendingSum {
 public:
  /// As the group likes to add.
  DirectSum(DeviceGroup& group, const at::Tensor& mine) : DirectSum(group) {
    group.sum(mine);
    mark_ = group.mark();
  }

  bool advance() final { return true; }
  void add() final {}
  void finish() final { mark_->hold_back(); }
  Seconds spent() final { return end_ ? end_->since(*begin_) : Seconds(0); }

 protected:
  explicit DirectSum(DeviceGroup& group) : group_(group) {}

  DeviceGroup& group_;
  std::unique_ptr<DeviceGroup::Mark> mark_;
  std::optional<Moment> begin_, end_;  ///< of the additions
};

// Each slice from its owner to all others.
void hand_out(DeviceGroup& group, const at::Tensor& flat, std::span<const Slice> slices) {
  group.together([&] {
    for (const Slice& slice : slices) {
      const auto owner = static_cast<int>(slice.owner);
      if (owner != group.me()) group.receive(owner, part_of(flat, slice));
      for (int i = 0; owner == group.me() && i < group.size(); ++i) {
        if (i != owner) group.send(i, part_of(flat, slice));
      }
    }
  });
}

// Each member adds its slices of all vectors, in the order of the members, and may give them to the others.
class SlicedSum final : public DirectSum {
 public:
  enum class HandOut { yes, no };

  SlicedSum(DeviceGroup& group, const at::Tensor& mine, std::vector<Slice> slices, HandOut hands_out)
      : DirectSum(group), flat_(mine.view(-1)) {
    std::erase_if(slices, [](const Slice& slice) { return slice.length() == 0; });
    group.together([&] {
      for (const Slice& slice : slices) {
        const auto owner = static_cast<int>(slice.owner);
        if (owner == group.me()) {
          receive_all(slice);
        } else {
          group.send(owner, part_of(flat_, slice));
        }
      }
    });
    group.beside([&] {
      begin_.emplace(flat_.device());
      for (std::vector<at::Tensor>& theirs : theirs_) {
        for (std::size_t i = 1; i < theirs.size(); ++i) theirs[0].add_(theirs[i]);
        if (group.me() != 0) theirs[static_cast<std::size_t>(group.me())].copy_(theirs[0]);
      }
      end_.emplace(flat_.device());
    });
    if (hands_out == HandOut::yes) hand_out(group, flat_, slices);
    mark_ = group.mark();
  }

 private:
  /// The other members' parts of a slice that this one adds up.
  void receive_all(const Slice& slice) {
    std::vector<at::Tensor>& theirs = theirs_.emplace_back(static_cast<std::size_t>(group_.size()));
    const at::Tensor own = part_of(flat_, slice);
    for (int i = 0; i < group_.size(); ++i) {
      at::Tensor& one = theirs[static_cast<std::size_t>(i)];
      one = i == group_.me() ? own : at::empty_like(own);
      if (i != group_.me()) group_.receive(i, one);
    }
  }

  at::Tensor flat_;
  std::vector<std::vector<at::Tensor>> theirs_;  ///< of each slice of this member's, by member
};

class DirectCollectives final : public Collectives {
 public:
  DirectCollectives(std::unique_ptr<Collectives> other, DeviceGroups groups, bool fast)
      : other_(std::move(other)), groups_(std::move(groups)), fast_(fast) {}

  Seconds sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (!groups_[group]) return other_->sum(group, me, mine);
    if (!mine.defined()) return Seconds(0);
    return complete(*begin_sum(group, me, mine));
  }

  bool overlaps(std::size_t group) const override { return groups_[group] || other_->overlaps(group); }

  std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (!groups_[group]) return other_->begin_sum(group, me, mine);
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    if (fast_) return std::make_unique<DirectSum>(*groups_[group], mine);
    return std::make_unique<SlicedSum>(
        *groups_[group], mine, equal_slices(mine.numel(), static_cast<std::size_t>(groups_[group]->size())),
        SlicedSum::HandOut::yes);
  }

  Seconds reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (!groups_[group]) return other_->reduce(group, me, mine, slices);
    return complete(*begin_reduce(group, me, mine, slices));
  }

  std::unique_ptr<PendingSum> begin_reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                                           std::span<const Slice> slices) override {
    if (!groups_[group]) return other_->begin_reduce(group, me, mine, slices);
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    return std::make_unique<SlicedSum>(*groups_[group], mine, std::vector(slices.begin(), slices.end()),
                                       SlicedSum::HandOut::no);
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (!groups_[group]) return other_->spread(group, me, mine, slices);
    hand_out(*groups_[group], mine, slices);
    groups_[group]->mark()->hold_back();
    return Seconds(0);
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    other_->gather(group, me, std::move(mine), use);
  }

 private:
  std::unique_ptr<Collectives> other_;
  DeviceGroups groups_;
  bool fast_;
};

}  // namespace

std::unique_ptr<Transport> make_direct_transport(Coordinator& coordinator, std::unique_ptr<Transport> other,
                                                 std::vector<Channel> channels, DeviceGroups groups) {
  return std::make_unique<DirectTransport>(coordinator, std::move(other), std::move(channels),
                                           std::move(groups));
}

std::unique_ptr<Collectives> make_direct_collectives(std::unique_ptr<Collectives> other, DeviceGroups groups,
                                                     bool fast) {
  return std::make_unique<DirectCollectives>(std::move(other), std::move(groups), fast);
}

}  // namespace pp::run
