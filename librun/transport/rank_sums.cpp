#include "librun/transport/rank_sums.h"

#include <ATen/ops/empty_like.h>

#include <utility>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

// Each slice from its owner to all others.
void hand_out(const GroupView& view, Bundle& messages, const at::Tensor& flat, std::span<const Slice> slices) {
  for (const Slice& slice : slices) {
    if (slice.owner != view.me())
      messages.add(view.receive(slice.owner, bytes_of(part_of(flat, slice)), GroupView::Round::second));
  }
  for (const Slice& slice : slices) {
    if (slice.owner != view.me()) continue;
    view.for_each_other([&](std::size_t i) {
      messages.add(view.send(i, bytes_of(part_of(flat, slice)), GroupView::Round::second));
    });
  }
}

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
        view_.worker(), [&] { return messages_.done(); }, [] { return kOtherMembers; });
  }

  const GroupView view_;
  Coordinator& coordinator_;
  at::Tensor mine_, host_;
  Bundle messages_;
};

class SliceSum final : public SumOnHost {
 public:
  enum class HandOut { yes, no };

  SliceSum(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine, std::vector<Slice> slices,
           HandOut hand_out)
      : SumOnHost(coordinator, view, mine),
        flat_(host_.view(-1)),
        slices_(std::move(slices)),
        hands_out_(hand_out == HandOut::yes) {
    std::erase_if(slices_, [](const Slice& slice) { return slice.length() == 0; });
    for (const Slice& slice : slices_) {
      if (slice.owner == view_.me()) receive_all(slice);
    }
    for (const Slice& slice : slices_) {
      if (slice.owner != view_.me())
        messages_.add(view_.send(slice.owner, bytes_of(part(slice)), GroupView::Round::first));
    }
  }

  bool advance() override {
    if (!added_ && messages_.done()) add_and_hand_out();
    return added_;
  }

  void add() override {
    if (added_) return;
    await();
    spent_ = add_and_hand_out();
  }

  Seconds spent() override { return spent_; }

 private:
  at::Tensor part(const Slice& slice) const { return part_of(flat_, slice); }

  /// Of a slice of this member's.
  void receive_all(const Slice& slice) {
    std::vector<at::Tensor>& theirs = theirs_.emplace_back(view_.size());
    theirs[view_.me()] = part(slice);
    view_.for_each_other([&](std::size_t i) {
      theirs[i] = at::empty_like(part(slice));
      messages_.keep(theirs[i]);
      messages_.add(view_.receive(i, bytes_of(theirs[i]), GroupView::Round::first));
    });
  }

  Seconds add_and_hand_out() {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    const auto start = Coordinator::Clock::now();
    for (std::vector<at::Tensor>& theirs : theirs_) {
      for (std::size_t i = 1; i < theirs.size(); ++i) theirs[0].add_(theirs[i]);
      if (view_.me() != 0) theirs[view_.me()].copy_(theirs[0]);
    }
    const Seconds elapsed = Coordinator::Clock::now() - start;
    if (hands_out_) hand_out(view_, messages_, flat_, slices_);
    added_ = true;
    return elapsed;
  }

  at::Tensor flat_;
  std::vector<Slice> slices_;
  bool hands_out_;
  std::vector<std::vector<at::Tensor>> theirs_;  ///< of each slice of this member's, by member
  bool added_ = false;
  Seconds spent_{};  ///< in add()
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
  void add() override {}
  Seconds spent() override { return Seconds(0); }
};

}  // namespace

std::unique_ptr<PendingSum> begin_slice_sum(Coordinator& coordinator, const GroupView& view,
                                            const at::Tensor& mine) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<SliceSum>(coordinator, view, mine, equal_slices(mine.numel(), view.size()),
                                    SliceSum::HandOut::yes);
}

std::unique_ptr<PendingSum> begin_slice_reduce(Coordinator& coordinator, const GroupView& view,
                                               const at::Tensor& mine, std::span<const Slice> slices) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<SliceSum>(coordinator, view, mine, std::vector(slices.begin(), slices.end()),
                                    SliceSum::HandOut::no);
}

void spread_slices(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine,
                   std::span<const Slice> slices) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  const at::Tensor host = profile::brought_to_host(mine);
  Bundle messages;
  messages.keep(host);
  hand_out(view, messages, host, slices);
  coordinator.poll(
      view.worker(), [&] { return messages.done(); }, [] { return kOtherMembers; });
  if (!host.is_same(mine)) mine.copy_(host, /*non_blocking=*/true);
}

std::unique_ptr<PendingSum> begin_library_sum(Coordinator& coordinator, const GroupView& view, int library,
                                              const at::Tensor& mine) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<LibrarySum>(coordinator, view, library, mine);
}

}  // namespace pp::run
