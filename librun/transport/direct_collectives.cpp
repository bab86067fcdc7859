// Sums over GPUs of several ranks.
#include <ATen/ops/empty_like.h>

#include <optional>
#include <utility>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/device_event.h"
#include "libprofile/device/memory_meter.h"
#include "librun/transport/direct_transport.h"

namespace pp::run {

namespace {

// As the group likes to add.
class FastSum final : public PendingSum {
 public:
  FastSum(DeviceGroup& group, const at::Tensor& mine) {
    group.sum(mine);
    mark_ = group.mark();
  }
  bool advance() override { return true; }
  void add() override {}
  void finish() override { mark_->hold_back(); }
  Seconds spent() override { return Seconds(0); }

 private:
  std::unique_ptr<DeviceGroup::Mark> mark_;
};

// Each slice from its owner to all others.
std::unique_ptr<DeviceGroup::Mark> hand_out(DeviceGroup& group, const at::Tensor& flat,
                                            std::span<const Slice> slices) {
  group.together([&] {
    for (const Slice& slice : slices) {
      const auto owner = static_cast<int>(slice.owner);
      if (owner != group.me()) group.receive(owner, part_of(flat, slice));
      for (int i = 0; owner == group.me() && i < group.size(); ++i) {
        if (i != owner) group.send(i, part_of(flat, slice));
      }
    }
  });
  return group.mark();
}

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

// Each member adds its slices of all vectors, in the order of the members, and may give them to the others. A
// group's calls have one order for all members, so nobody hands out before it must.
class DirectSum final : public PendingSum {
 public:
  enum class HandOut { yes, no };

  DirectSum(DeviceGroup& group, const at::Tensor& mine, std::vector<Slice> slices, HandOut hand_out)
      : group_(group), flat_(mine.view(-1)), slices_(std::move(slices)), hands_out_(hand_out == HandOut::yes) {
    std::erase_if(slices_, [](const Slice& slice) { return slice.length() == 0; });
    group_.together([&] {
      for (const Slice& slice : slices_) {
        const auto owner = static_cast<int>(slice.owner);
        if (owner == group_.me()) {
          receive_all(slice);
        } else {
          group_.send(owner, part_of(flat_, slice));
        }
      }
    });
    mark_ = group_.mark();
  }

  bool advance() override { return false; }

  void add() override {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    mark_->hold_back();
    begin_.emplace(flat_.device());
    for (std::vector<at::Tensor>& theirs : theirs_) {
      for (std::size_t i = 1; i < theirs.size(); ++i) theirs[0].add_(theirs[i]);
      if (group_.me() != 0) theirs[static_cast<std::size_t>(group_.me())].copy_(theirs[0]);
    }
    end_.emplace(flat_.device());
    if (hands_out_) mark_ = hand_out(group_, flat_, slices_);
  }

  void finish() override { mark_->hold_back(); }

  Seconds spent() override { return end_->since(*begin_); }

 private:
  /// Of a slice of this member's.
  void receive_all(const Slice& slice) {
    std::vector<at::Tensor>& theirs = theirs_.emplace_back(static_cast<std::size_t>(group_.size()));
    const at::Tensor own = part_of(flat_, slice);
    for (int i = 0; i < group_.size(); ++i) {
      at::Tensor& one = theirs[static_cast<std::size_t>(i)];
      one = i == group_.me() ? own : at::empty_like(own);
      if (i != group_.me()) group_.receive(i, one);
    }
  }

  DeviceGroup& group_;
  at::Tensor flat_;
  std::vector<Slice> slices_;
  bool hands_out_;
  std::vector<std::vector<at::Tensor>> theirs_;  ///< of each slice of this member's, by member
  std::unique_ptr<DeviceGroup::Mark> mark_;
  std::optional<Moment> begin_, end_;  ///< of the additions
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
    if (fast_) return std::make_unique<FastSum>(*groups_[group], mine);
    return std::make_unique<DirectSum>(
        *groups_[group], mine, equal_slices(mine.numel(), static_cast<std::size_t>(groups_[group]->size())),
        DirectSum::HandOut::yes);
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
    return std::make_unique<DirectSum>(*groups_[group], mine, std::vector(slices.begin(), slices.end()),
                                       DirectSum::HandOut::no);
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (!groups_[group]) return other_->spread(group, me, mine, slices);
    hand_out(*groups_[group], mine, slices)->hold_back();
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

std::unique_ptr<Collectives> make_direct_collectives(std::unique_ptr<Collectives> other, DeviceGroups groups,
                                                     bool fast) {
  return std::make_unique<DirectCollectives>(std::move(other), std::move(groups), fast);
}

}  // namespace pp::run
