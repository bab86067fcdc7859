#include "librun/transport/rank_sums.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

constexpr std::int64_t kAlignment = 64;

// What is known of a tensor before its bytes.
constexpr std::size_t kMostDimensions = 6;
struct Description {
  std::int64_t type = 0, dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes{};
};

Description describe(const at::Tensor& tensor) {
  if (tensor.dim() > static_cast<std::int64_t>(kMostDimensions))
    throw Error(ErrorKind::internal, "a tensor of more than 6 dimensions is gathered");
  Description what{static_cast<std::int64_t>(tensor.scalar_type()), tensor.dim(), {}};
  std::ranges::copy(tensor.sizes(), what.sizes.begin());
  return what;
}

std::int64_t padded(std::size_t bytes) {
  return (static_cast<std::int64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

// How many there are, their descriptions and their bytes, each beginning at a multiple of 64.
at::Tensor pack(const std::vector<at::Tensor>& tensors) {
  std::vector<Description> what;
  std::int64_t size = kAlignment + padded(tensors.size() * sizeof(Description));
  for (const at::Tensor& tensor : tensors) {
    what.push_back(describe(tensor));
    size += padded(tensor.nbytes());
  }
  at::Tensor blob = at::empty({size}, at::kByte);
  auto* to = blob.mutable_data_ptr<std::uint8_t>();
  const auto add = [&](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += padded(bytes);
  };
  const std::size_t count = tensors.size();
  add(&count, sizeof count);
  add(what.data(), what.size() * sizeof(Description));
  for (const at::Tensor& tensor : tensors) add(tensor.const_data_ptr(), tensor.nbytes());
  return blob;
}

// Views of the blob, which they keep.
std::vector<at::Tensor> unpack(const at::Tensor& blob) {
  auto* from = static_cast<std::uint8_t*>(blob.data_ptr());
  std::size_t count = 0;
  std::memcpy(&count, from, sizeof count);
  std::vector<Description> what(count);
  if (count > 0) std::memcpy(what.data(), from + kAlignment, count * sizeof(Description));
  from += kAlignment + padded(count * sizeof(Description));
  std::vector<at::Tensor> tensors;
  for (const Description& one : what) {
    const at::IntArrayRef sizes(one.sizes.data(), static_cast<std::size_t>(one.dimensions));
    tensors.push_back(at::from_blob(
        from, sizes, [blob](void*) {}, static_cast<at::ScalarType>(one.type)));
    from += padded(tensors.back().nbytes());
  }
  return tensors;
}

class Gathering {
 public:
  Gathering(Coordinator& coordinator, const GroupView& view) : coordinator_(coordinator), view_(view) {}

  // By member, beginning with this one.
  std::vector<at::Tensor> gather(at::Tensor mine) {
    std::vector<at::Tensor> blobs{std::move(mine)};
    const std::size_t all = view_.size();
    while (blobs.size() < all) {
      const std::size_t step = blobs.size();
      const std::size_t to = (view_.me() + all - step) % all, from = (view_.me() + step) % all;
      const std::size_t count = std::min(step, all - step);
      const auto whole = static_cast<std::int64_t>(count);
      const at::Tensor sizes = at::empty({whole}, at::kLong), theirs = at::empty_like(sizes);
      for (std::size_t i = 0; i < count; ++i) sizes.mutable_data_ptr<std::int64_t>()[i] = blobs[i].numel();
      exchange(to, sizes, from, theirs);
      const std::span<const std::int64_t> lengths(theirs.const_data_ptr<std::int64_t>(), count);
      const at::Tensor in =
          at::empty({std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})}, at::kByte);
      exchange(to, at::cat(at::TensorList(blobs.data(), count)), from, in);
      std::int64_t begin = 0;
      for (const std::int64_t length : lengths)
        blobs.push_back(in.narrow(0, std::exchange(begin, begin + length), length));
    }
    return blobs;
  }

 private:
  void exchange(std::size_t to, const at::Tensor& out, std::size_t from, const at::Tensor& in) {
    Bundle messages;
    messages.keep(std::pair(out, in));
    messages.add(view_.receive(from, bytes_of(in), GroupView::Round::first));
    messages.add(view_.send(to, bytes_of(out), GroupView::Round::first));
    coordinator_.poll(
        view_.worker(), [&] { return messages.done(); }, [] { return "the other workers of an all-reduce"; });
  }

  Coordinator& coordinator_;
  const GroupView& view_;
};

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

Collectives::Parts all_gather(Coordinator& coordinator, const GroupView& view, std::vector<at::Tensor> mine) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  for (at::Tensor& tensor : mine) tensor = profile::brought_to_host(tensor);
  const std::vector<at::Tensor> blobs = Gathering(coordinator, view).gather(pack(mine));
  Collectives::Parts parts(view.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) parts[(view.me() + i) % view.size()] = unpack(blobs[i]);
  return parts;
}

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
