#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "librun/transport/circle.h"
#include "librun/transport/rank_sums.h"
#include "librun/transport/rank_transport.h"

namespace pp::run {

namespace {

// What is known of a tensor before its bytes come.
constexpr std::size_t kMostDimensions = 6;
struct Description {
  std::int8_t type = 0, dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes{};
};

Description describe(const at::Tensor& tensor) {
  if (tensor.dim() > static_cast<std::int64_t>(kMostDimensions))
    throw Error(ErrorKind::internal, "a tensor of more than 6 dimensions is gathered");
  Description what{static_cast<std::int8_t>(tensor.scalar_type()), static_cast<std::int8_t>(tensor.dim()), {}};
  std::ranges::copy(tensor.sizes(), what.sizes.begin());
  return what;
}

at::Tensor empty_as(const Description& what) {
  return at::empty(at::IntArrayRef(what.sizes.data(), static_cast<std::size_t>(what.dimensions)),
                   static_cast<at::ScalarType>(what.type));
}

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
      if (!within(group)) tags += Circle::tags_of(group);
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
    const std::unique_ptr<PendingSum> sum = begin_sum(group, me, mine);
    const Seconds elapsed = sum->add();
    sum->finish();
    return elapsed;
  }

  std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    if (within(groups_[group])) return nullptr;
    const bool known = mine.scalar_type() == at::kFloat || mine.scalar_type() == at::kDouble;
    if (known && library_[group])
      return begin_library_sum(coordinator_, circle(group, me), *library_[group], mine);
    return begin_slice_sum(coordinator_, circle(group, me), mine);
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    if (within(groups_[group])) return local_->gather(group, me, std::move(mine), use);
    use(everybodys(circle(group, me), std::move(mine)));
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

  Circle circle(std::size_t group, WorkerId me) const {
    return {groups_[group], me, first_tags_[group], placement_, peers_};
  }

  void wait(const Circle& circle, Bundle& messages) {
    coordinator_.poll(
        circle.worker(), [&] { return messages.done(); }, [] { return "the other workers of an all-reduce"; });
  }

  // Three rounds, each over the same tags: how many tensors, what they are, their bytes.
  Parts everybodys(const Circle& circle, std::vector<at::Tensor> mine) {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    struct Announced {
      std::vector<std::size_t> counts;
      std::vector<std::vector<Description>> tensors;
    };
    const auto all = std::make_shared<Announced>();
    all->counts.assign(circle.size(), mine.size());
    exchange(circle, all, [&](std::size_t i) { return std::as_writable_bytes(std::span(&all->counts[i], 1)); });
    for (const std::size_t count : all->counts) all->tensors.emplace_back(count);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = profile::brought_to_host(mine[i]);
      all->tensors[circle.me()][i] = describe(mine[i]);
    }
    exchange(circle, all, [&](std::size_t i) { return std::as_writable_bytes(std::span(all->tensors[i])); });
    Parts parts(circle.size());
    Bundle messages;
    circle.for_each_other([&](std::size_t i) {
      for (const Description& what : all->tensors[i]) {
        parts[i].push_back(empty_as(what));
        messages.add(circle.receive(i, bytes_of(parts[i].back()), Circle::Round::first));
      }
      for (const at::Tensor& tensor : mine)
        messages.add(circle.send(i, bytes_of(tensor), Circle::Round::first));
    });
    parts[circle.me()] = std::move(mine);
    messages.keep(parts);
    wait(circle, messages);
    return parts;
  }

  // Every member's place(i), in `memory`, is filled with what member i has in its own.
  template <class Memory, class Place>
  void exchange(const Circle& circle, const Memory& memory, Place&& place) {
    Bundle messages;
    messages.keep(memory);
    circle.for_each_other([&](std::size_t i) {
      messages.add(circle.receive(i, place(i), Circle::Round::first));
      messages.add(circle.send(i, place(circle.me()), Circle::Round::first));
    });
    wait(circle, messages);
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

std::unique_ptr<Collectives> make_rank_collectives(Coordinator& coordinator, std::vector<Group> groups,
                                                   const Placement& placement, Peers& peers, std::size_t fast) {
  return std::make_unique<RankCollectives>(coordinator, std::move(groups), placement, peers, fast);
}

}  // namespace pp::run
