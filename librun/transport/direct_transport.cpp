// Boundary tensors and sums over GPUs of several ranks.
#include "librun/transport/direct_transport.h"

#include <ATen/ops/empty.h>

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
#include "librun/transport/slice_sum.h"

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
  DirectSum(DeviceGroup& group, const at::Tensor& mine) {
    group.sum(mine);
    mark_ = group.mark();
  }

  bool advance() final { return true; }
  void add() final {}
  void finish() final { mark_->hold_back(); }
  Seconds spent() final { return end_ ? end_->since(*begin_) : Seconds(0); }

 protected:
  DirectSum() = default;

  std::unique_ptr<DeviceGroup::Mark> mark_;
  std::optional<Moment> begin_, end_;  ///< of the additions
};

// A member's end of its group.
class DeviceLine {
 public:
  explicit DeviceLine(DeviceGroup& group) : group_(group) {}
  std::size_t me() const { return static_cast<std::size_t>(group_.me()); }
  std::size_t size() const { return static_cast<std::size_t>(group_.size()); }
  void send(std::size_t to, const at::Tensor& tensor) const { group_.send(static_cast<int>(to), tensor); }
  void receive(std::size_t from, const at::Tensor& tensor) const {
    group_.receive(static_cast<int>(from), tensor);
  }

 private:
  DeviceGroup& group_;
};

class SliceSumOnDevices final : public DirectSum {
 public:
  enum class HandOut { yes, no };

  SliceSumOnDevices(DeviceGroup& group, const at::Tensor& mine, std::vector<Slice> slices, HandOut hands_out)
      : sum_(mine, std::move(slices)) {
    const DeviceLine line(group);
    group.together([&] { sum_.collect(line); });
    group.beside([&] {
      begin_.emplace(mine.device());
      sum_.add();
      end_.emplace(mine.device());
    });
    if (hands_out == HandOut::yes) group.together([&] { sum_.hand_out(line); });
    mark_ = group.mark();
  }

 private:
  SliceSum sum_;
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
    return std::make_unique<SliceSumOnDevices>(
        *groups_[group], mine, equal_slices(mine.numel(), static_cast<std::size_t>(groups_[group]->size())),
        SliceSumOnDevices::HandOut::yes);
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
    return std::make_unique<SliceSumOnDevices>(*groups_[group], mine, std::vector(slices.begin(), slices.end()),
                                               SliceSumOnDevices::HandOut::no);
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (!groups_[group]) return other_->spread(group, me, mine, slices);
    groups_[group]->together([&] { hand_out(DeviceLine(*groups_[group]), mine, slices); });
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
