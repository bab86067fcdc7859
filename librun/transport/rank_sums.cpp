#include "librun/transport/rank_sums.h"

#include <ATen/ops/empty_like.h>

#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

// Of what is on its way.
class SumOnHost : public PendingSum {
 public:
  SumOnHost(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine)
      : view_(view), coordinator_(coordinator), mine_(mine), host_(profile::brought_to_host(mine)) {
    messages_.keep(host_);
  }

  void finish() final {
    await();
    if (!host_.is_same(mine_)) mine_.copy_(host_, /*non_blocking=*/true);
  }

 protected:
  void await() {
    coordinator_.poll(
        view_.worker(), [&] { return messages_.done(); }, [] { return "the other workers of an all-reduce"; });
  }

  const GroupView view_;
  Coordinator& coordinator_;
  at::Tensor mine_, host_;
  Bundle messages_;
};

class SliceSum final : public SumOnHost {
 public:
  SliceSum(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine)
      : SumOnHost(coordinator, view, mine), flat_(host_.view(-1)), theirs_(view.size()) {
    theirs_[view.me()] = slice(view.me());
    view.for_each_other([&](std::size_t i) {
      theirs_[i] = at::empty_like(slice(view.me()));
      messages_.keep(theirs_[i]);
      messages_.add(view.receive(i, bytes_of(theirs_[i]), GroupView::Round::first));
    });
    view.for_each_other(
        [&](std::size_t i) { messages_.add(view.send(i, bytes_of(slice(i)), GroupView::Round::first)); });
  }

  bool advance() override {
    if (!added_ && messages_.done()) add_and_hand_out();
    return added_;
  }

  Seconds add() override {
    if (added_) return Seconds(0);
    await();
    return add_and_hand_out();
  }

 private:
  at::Tensor slice(std::size_t place) const {
    const auto i = static_cast<std::int64_t>(place), count = static_cast<std::int64_t>(view_.size());
    const std::int64_t first = i * flat_.numel() / count;
    return flat_.narrow(0, first, (i + 1) * flat_.numel() / count - first);
  }

  Seconds add_and_hand_out() {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    const auto start = Coordinator::Clock::now();
    for (std::size_t i = 1; i < theirs_.size(); ++i) theirs_[0].add_(theirs_[i]);
    const at::Tensor own = slice(view_.me());
    if (view_.me() != 0) own.copy_(theirs_[0]);
    const Seconds elapsed = Coordinator::Clock::now() - start;
    view_.for_each_other(
        [&](std::size_t i) { messages_.add(view_.receive(i, bytes_of(slice(i)), GroupView::Round::second)); });
    view_.for_each_other(
        [&](std::size_t i) { messages_.add(view_.send(i, bytes_of(own), GroupView::Round::second)); });
    added_ = true;
    return elapsed;
  }

  at::Tensor flat_;
  std::vector<at::Tensor> theirs_;  ///< this member's slice of every vector
  bool added_ = false;
};

// The library adds while it is waited for.
class LibrarySum final : public SumOnHost {
 public:
  LibrarySum(Coordinator& coordinator, const GroupView& view, int library, const at::Tensor& mine)
      : SumOnHost(coordinator, view, mine) {
    const auto type = host_.scalar_type() == at::kDouble ? Peers::Element::float64 : Peers::Element::float32;
    messages_.add(view.peers().sum(library, bytes_of(host_), type));
  }

  bool advance() override {
    messages_.done();  // asking moves it on
    return true;
  }
  Seconds add() override { return Seconds(0); }
};

}  // namespace

std::unique_ptr<PendingSum> begin_slice_sum(Coordinator& coordinator, const GroupView& view,
                                            const at::Tensor& mine) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<SliceSum>(coordinator, view, mine);
}

std::unique_ptr<PendingSum> begin_library_sum(Coordinator& coordinator, const GroupView& view, int library,
                                              const at::Tensor& mine) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<LibrarySum>(coordinator, view, library, mine);
}

}  // namespace pp::run
