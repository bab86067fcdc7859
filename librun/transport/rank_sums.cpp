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
#include "librun/transport/slice_sum.h"

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

// The members' ends of one round of messages, which need their tensors until they are done.
class HostLine {
 public:
  HostLine(const GroupView& view, Bundle& messages, GroupView::Round round)
      : view_(view), messages_(messages), round_(round) {}

  std::size_t me() const { return view_.me(); }
  std::size_t size() const { return view_.size(); }
  void send(std::size_t to, const at::Tensor& tensor) const {
    messages_.add(view_.send(to, bytes_of(tensor), round_));
  }
  void receive(std::size_t from, const at::Tensor& tensor) const {
    messages_.keep(tensor);
    messages_.add(view_.receive(from, bytes_of(tensor), round_));
  }

 private:
  const GroupView& view_;
  Bundle& messages_;
  GroupView::Round round_;
};

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

class SliceSumOnHost final : public SumOnHost {
 public:
  enum class HandOut { yes, no };

  SliceSumOnHost(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine,
                 std::vector<Slice> slices, HandOut hand_out)
      : SumOnHost(coordinator, view, mine),
        sum_(host_, std::move(slices)),
        hands_out_(hand_out == HandOut::yes) {
    sum_.collect(HostLine(view_, messages_, GroupView::Round::first));
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
  Seconds add_and_hand_out() {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    const auto start = Coordinator::Clock::now();
    sum_.add();
    const Seconds elapsed = Coordinator::Clock::now() - start;
    if (hands_out_) sum_.hand_out(HostLine(view_, messages_, GroupView::Round::second));
    added_ = true;
    return elapsed;
  }

  SliceSum sum_;
  bool hands_out_;
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
  return std::make_unique<SliceSumOnHost>(coordinator, view, mine, equal_slices(mine.numel(), view.size()),
                                          SliceSumOnHost::HandOut::yes);
}

std::unique_ptr<PendingSum> begin_slice_reduce(Coordinator& coordinator, const GroupView& view,
                                               const at::Tensor& mine, std::span<const Slice> slices) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  return std::make_unique<SliceSumOnHost>(coordinator, view, mine, std::vector(slices.begin(), slices.end()),
                                          SliceSumOnHost::HandOut::no);
}

void spread_slices(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine,
                   std::span<const Slice> slices) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  const at::Tensor host = profile::brought_to_host(mine);
  Bundle messages;
  messages.keep(host);
  hand_out(HostLine(view, messages, GroupView::Round::second), host, slices);
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
