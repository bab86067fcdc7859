#include "librun/links/sum_overlap.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "librun/links/message_cost.h"
#include "librun/links/rank_links.h"
#include "librun/transport/rank_transport.h"

namespace pp::run {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBuckets = 8;
constexpr int kRepetitions = 7;

// One worker a rank.
Placement placement_of(const Peers& peers) {
  Placement placement{.rank = peers.rank(), .ranks = peers.size(), .rank_of = {}};
  placement.rank_of.resize(static_cast<std::size_t>(peers.size()));
  std::iota(placement.rank_of.begin(), placement.rank_of.end(), 0);
  return placement;
}

std::vector<Group> everybody(int ranks) {
  std::vector<Group> groups(1);
  for (int r = 0; r < ranks; ++r) groups.front().push_back(WorkerId{r});
  return groups;
}

class Member {
 public:
  Member(Peers& peers, Bytes size, const Compute& compute)
      : compute_(compute),
        me_{peers.rank()},
        all_(peers),
        placement_(placement_of(peers)),
        coordinator_(peers.size()),
        collectives_(make_rank_collectives(coordinator_, everybody(peers.size()), placement_, peers)),
        peers_(peers),
        gradient_(at::zeros({size.value / 4})) {}

  /// The least of several times; what disturbs one only adds to it. No computation at 0, no sum without one.
  Seconds time(Seconds computation, bool with_sum) {
    Seconds least = Seconds::max();
    {
      const Mover mover(peers_);
      for (int i = 0; i < kRepetitions; ++i) least = std::min(least, once(computation, with_sum));
    }
    all_.meet();  // texts may come to everybody again
    return least;
  }

 private:
  Seconds once(Seconds computation, bool with_sum) {
    all_.meet();
    const auto start = Clock::now();
    std::vector<std::unique_ptr<PendingSum>> sums;
    for (int b = 0; b < kBuckets; ++b) {
      if (computation > Seconds(0)) compute_(computation / kBuckets);
      if (with_sum) sums.push_back(collectives_->begin_sum(0, me_, bucket(b)));
      for (const auto& sum : sums) {
        if (!sum->advance()) break;
      }
    }
    for (const auto& sum : sums) sum->add();
    for (const auto& sum : sums) sum->finish();
    return Clock::now() - start;
  }

  at::Tensor bucket(int b) const {
    const std::int64_t first = b * gradient_.numel() / kBuckets;
    return gradient_.narrow(0, first, (b + 1) * gradient_.numel() / kBuckets - first);
  }

  const Compute& compute_;
  WorkerId me_;
  AllRanks all_;
  Placement placement_;
  Coordinator coordinator_;
  std::unique_ptr<Collectives> collectives_;
  Peers& peers_;
  at::Tensor gradient_;
};

std::vector<double> everybodys(Peers& peers, double mine) {
  std::vector<double> all;
  for (const std::string& bytes : gather(peers, {reinterpret_cast<const char*>(&mine), sizeof mine}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  return all;
}

}  // namespace

double measure_sum_overlap(Peers& peers, Bytes size, const Compute& compute) {
  Member member(peers, size, compute);
  const Seconds sum = member.time(Seconds(0), /*with_sum=*/true);
  const Seconds computation(std::ranges::max(everybodys(peers, sum.count())));
  const Seconds alone = member.time(computation, /*with_sum=*/false);
  const Seconds both = member.time(computation, /*with_sum=*/true);
  constexpr double kCanHide = 1 - 1.0 / kBuckets;
  const double share = (sum + alone - both) / (kCanHide * alone);
  return std::clamp(std::ranges::min(everybodys(peers, share)), 0.0, 1.0);
}

}  // namespace pp::run
