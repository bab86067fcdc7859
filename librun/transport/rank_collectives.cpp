#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/transport/all_gather.h"
#include "librun/transport/group_view.h"
#include "librun/transport/rank_sums.h"
#include "librun/transport/rank_transport.h"

namespace pp::run {

namespace {

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
      if (!within(group)) tags += GroupView::tags_of(group);
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
    return complete(*begin_sum(group, me, mine));
  }

  bool overlaps(std::size_t group) const override { return !within(groups_[group]); }

  std::unique_ptr<PendingSum> begin_sum(std::size_t group, WorkerId me, const at::Tensor& mine) override {
    const bool known = mine.scalar_type() == at::kFloat || mine.scalar_type() == at::kDouble;
    if (known && library_[group])
      return begin_library_sum(coordinator_, view(group, me), *library_[group], mine);
    return begin_slice_sum(coordinator_, view(group, me), mine);
  }

  Seconds reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (within(groups_[group])) return local_->reduce(group, me, mine, slices);
    return complete(*begin_reduce(group, me, mine, slices));
  }

  std::unique_ptr<PendingSum> begin_reduce(std::size_t group, WorkerId me, const at::Tensor& mine,
                                           std::span<const Slice> slices) override {
    return begin_slice_reduce(coordinator_, view(group, me), mine, slices);
  }

  Seconds spread(std::size_t group, WorkerId me, const at::Tensor& mine,
                 std::span<const Slice> slices) override {
    if (within(groups_[group])) return local_->spread(group, me, mine, slices);
    spread_slices(coordinator_, view(group, me), mine, slices);
    return Seconds(0);
  }

  void gather(std::size_t group, WorkerId me, std::vector<at::Tensor> mine,
              const std::function<void(const Parts&)>& use) override {
    if (within(groups_[group])) return local_->gather(group, me, std::move(mine), use);
    use(all_gather(coordinator_, view(group, me), std::move(mine)));
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

  GroupView view(std::size_t group, WorkerId me) const {
    return {groups_[group], me, first_tags_[group], placement_, peers_};
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
