#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/memory_meter.h"
#include "librun/transport/rank_transport.h"

namespace pp::run {

namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// One member's view of a group.
struct Circle {
  const Group* members = nullptr;
  int first_tag = 0;
  std::size_t me = 0;
  WorkerId worker{};

  std::size_t size() const { return members->size(); }
  int tag(std::size_t from, std::size_t to) const { return first_tag + static_cast<int>(from * size() + to); }
};

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
      if (!within(group)) tags += std::ssize(group) * std::ssize(group);
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
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    const at::Tensor host = mine.to(at::kCPU).contiguous();
    const bool known = host.scalar_type() == at::kFloat || host.scalar_type() == at::kDouble;
    const Seconds elapsed = known && library_[group] ? sum_by_library(circle(group, me), *library_[group], host)
                                                     : sum_slices(circle(group, me), host.view(-1));
    if (!host.is_same(mine)) mine.copy_(host);
    return elapsed;
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    if (within(groups_[group])) return local_->gather(group, me, std::move(mine), use);
    use(everybodys(circle(group, me), std::move(mine)));
  }

 private:
  using Messages = std::vector<std::unique_ptr<Posted>>;

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
    const Group& members = groups_[group];
    const auto place = static_cast<std::size_t>(std::ranges::find(members, me) - members.begin());
    return {&members, first_tags_[group], place, me};
  }

  std::unique_ptr<Posted> send(const Circle& circle, std::size_t to, const at::Tensor& tensor) {
    return send(circle, to, std::span<const std::byte>(bytes_of(tensor)));
  }
  std::unique_ptr<Posted> send(const Circle& circle, std::size_t to, std::span<const std::byte> bytes) {
    return peers_.send({Peers::Lane::sums, placement_.of((*circle.members)[to]), circle.tag(circle.me, to)},
                       bytes, bytes.size(), Peers::Sent::gone);
  }
  std::unique_ptr<Posted> receive(const Circle& circle, std::size_t from, std::span<std::byte> room) {
    return peers_.receive(
        {Peers::Lane::sums, placement_.of((*circle.members)[from]), circle.tag(from, circle.me)}, room);
  }

  // Of a stopped run the messages are left to the library, which may still write them.
  template <class Keep>
  void wait(const Circle& circle, Messages& messages, Keep&& keep) {
    const auto all_done = [&] {
      return std::ranges::all_of(messages, [](const auto& message) { return message->done(); });
    };
    try {
      coordinator_.poll(circle.worker, all_done, [] { return "the other workers of an all-reduce"; });
    } catch (const Stopped&) {
      new std::pair(std::move(messages), keep());
      throw;
    }
    messages.clear();
  }

  Seconds sum_slices(const Circle& circle, const at::Tensor& mine) {
    const auto count = static_cast<std::int64_t>(circle.size());
    const auto slice = [&](std::size_t place) {
      const auto i = static_cast<std::int64_t>(place);
      const std::int64_t first = i * mine.numel() / count;
      return mine.narrow(0, first, (i + 1) * mine.numel() / count - first);
    };
    const at::Tensor own = slice(circle.me);
    std::vector<at::Tensor> theirs(circle.size());
    const auto keep = [&] { return std::pair(mine, theirs); };
    Messages messages;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i == circle.me) continue;
      theirs[i] = at::empty_like(own);
      messages.push_back(receive(circle, i, bytes_of(theirs[i])));
    }
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i != circle.me) messages.push_back(send(circle, i, slice(i)));
    }
    wait(circle, messages, keep);
    const auto start = Coordinator::Clock::now();
    theirs[circle.me] = own;
    at::Tensor sum = theirs[0].clone();
    for (std::size_t i = 1; i < circle.size(); ++i) sum.add_(theirs[i]);
    own.copy_(sum);
    const Seconds elapsed = Coordinator::Clock::now() - start;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i != circle.me) messages.push_back(receive(circle, i, bytes_of(slice(i))));
    }
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i != circle.me) messages.push_back(send(circle, i, own));
    }
    wait(circle, messages, keep);
    return elapsed;
  }

  // The library adds while it is waited for.
  Seconds sum_by_library(const Circle& circle, int library, const at::Tensor& mine) {
    const bool wide = mine.scalar_type() == at::kDouble;
    Messages messages;
    messages.push_back(
        peers_.sum(library, bytes_of(mine), wide ? Peers::Element::float64 : Peers::Element::float32));
    wait(circle, messages, [&] { return mine; });
    return Seconds(0);
  }

  // Three rounds, each over the same tags: how many tensors, what they are, their bytes.
  Parts everybodys(const Circle& circle, std::vector<at::Tensor> mine) {
    const profile::ChargeMemory charged{profile::MemoryAccount()};
    struct Announced {
      std::vector<std::size_t> counts;
      std::vector<std::vector<Description>> tensors;
    };
    const auto all = std::make_shared<Announced>();
    const auto keep = [&] { return all; };
    all->counts.assign(circle.size(), mine.size());
    exchange(
        circle, [&](std::size_t i) { return std::as_writable_bytes(std::span(&all->counts[i], 1)); }, keep);
    for (const std::size_t count : all->counts) all->tensors.emplace_back(count);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = mine[i].to(at::kCPU).contiguous();
      all->tensors[circle.me][i] = describe(mine[i]);
    }
    exchange(
        circle, [&](std::size_t i) { return std::as_writable_bytes(std::span(all->tensors[i])); }, keep);
    Parts parts(circle.size());
    Messages messages;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i == circle.me) continue;
      for (const Description& what : all->tensors[i]) {
        parts[i].push_back(empty_as(what));
        messages.push_back(receive(circle, i, bytes_of(parts[i].back())));
      }
      for (const at::Tensor& tensor : mine) messages.push_back(send(circle, i, tensor));
    }
    parts[circle.me] = std::move(mine);
    wait(circle, messages, [&] { return parts; });
    return parts;
  }

  // Every member's place(i) is filled with what member i has in its own.
  template <class Place, class Keep>
  void exchange(const Circle& circle, Place&& place, Keep&& keep) {
    Messages messages;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      if (i == circle.me) continue;
      messages.push_back(receive(circle, i, place(i)));
      messages.push_back(send(circle, i, place(circle.me)));
    }
    wait(circle, messages, keep);
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
