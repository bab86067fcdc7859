// Sums over GPUs of several ranks.
#include <ATen/ops/empty_like.h>

#include <utility>

#include "libprofile/device/compute_device.h"
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
  Seconds add() override { return Seconds(0); }
  void finish() override { mark_->hold_back(); }

 private:
  std::unique_ptr<DeviceGroup::Mark> mark_;
};

// Each member adds one slice of all vectors, in the order of the members, and gives it to the others. A group's
// calls have one order for all members, so nobody hands out before it must.
class DirectSum final : public PendingSum {
 public:
  DirectSum(DeviceGroup& group, const at::Tensor& mine)
      : group_(group), flat_(mine.view(-1)), theirs_(static_cast<std::size_t>(group.size())) {
    for (int i = 0; i < group.size(); ++i)
      theirs_[static_cast<std::size_t>(i)] = i == group.me() ? slice(i) : at::empty_like(slice(group.me()));
    exchange([&](int i) { give_and_take(i, slice(i), theirs_[static_cast<std::size_t>(i)]); });
  }

  bool advance() override { return false; }

  Seconds add() override {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    mark_->hold_back();
    profile::wait_for(flat_.device());
    const auto start = Coordinator::Clock::now();
    for (std::size_t i = 1; i < theirs_.size(); ++i) theirs_[0].add_(theirs_[i]);
    const at::Tensor own = slice(group_.me());
    if (group_.me() != 0) own.copy_(theirs_[0]);
    profile::wait_for(flat_.device());
    const Seconds elapsed = Coordinator::Clock::now() - start;
    exchange([&](int i) { give_and_take(i, own, slice(i)); });
    return elapsed;
  }

  void finish() override { mark_->hold_back(); }

 private:
  at::Tensor slice(int member) const {
    const std::int64_t first = member * flat_.numel() / group_.size();
    return flat_.narrow(0, first, (member + 1) * flat_.numel() / group_.size() - first);
  }

  template <class WithOther>
  void exchange(WithOther&& with_other) {
    group_.together([&] {
      for (int i = 0; i < group_.size(); ++i) {
        if (i != group_.me()) with_other(i);
      }
    });
    mark_ = group_.mark();
  }

  void give_and_take(int other, const at::Tensor& mine, const at::Tensor& theirs) {
    if (mine.numel() > 0) group_.send(other, mine);
    if (theirs.numel() > 0) group_.receive(other, theirs);
  }

  DeviceGroup& group_;
  at::Tensor flat_;
  std::vector<at::Tensor> theirs_;  ///< this member's slice of every vector
  std::unique_ptr<DeviceGroup::Mark> mark_;
};

class DirectCollectives final : public Collectives {
 public:
  DirectCollectives(std::unique_ptr<Collectives> other, DeviceGroups groups, bool fast)
      : other_(std::move(other)), groups_(std::move(groups)), fast_(fast) {}

  Seconds sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (!groups_[group]) return other_->sum(group, me, mine);
    if (!mine.defined()) return Seconds(0);
    const std::unique_ptr<PendingSum> sum = begin_sum(group, me, mine);
    const Seconds elapsed = sum->add();
    sum->finish();
    return elapsed;
  }

  bool overlaps(std::size_t group) const override { return groups_[group] || other_->overlaps(group); }

  std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (!groups_[group]) return other_->begin_sum(group, me, mine);
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    if (fast_) return std::make_unique<FastSum>(*groups_[group], mine);
    return std::make_unique<DirectSum>(*groups_[group], mine);
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
