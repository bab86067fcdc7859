// Lists of tensors among ranks that are threads.
#include "librun/transport/rank_sums.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <numeric>

#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

namespace all_gather_test {

using namespace pp;
using pp::test::ThreadPeers;
using pp::test::Wires;

namespace {

// Member i has i tensors, of other shapes and types at each place; member 0 has none.
std::vector<at::Tensor> tensors_of(int member) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < member; ++i) {
    const double value = 100 * member + i;
    if (i % 4 == 0) tensors.push_back(at::full({}, value, at::kDouble));
    if (i % 4 == 1) tensors.push_back(at::arange(60 * member, at::kFloat).view({3, 4, -1}).transpose(0, 1));
    if (i % 4 == 2) tensors.push_back(at::full({7}, value, at::kBFloat16));
    if (i % 4 == 3) tensors.push_back(at::empty({0, 2}, at::kLong));
  }
  return tensors;
}

run::Placement one_each(int rank, int ranks) {
  run::Placement placement{
      .rank = rank, .ranks = ranks, .rank_of = std::vector<int>(static_cast<std::size_t>(ranks))};
  std::iota(placement.rank_of.begin(), placement.rank_of.end(), 0);
  return placement;
}

}  // namespace

TEST_SUITE("librun/transport/all_gather") {
  TEST_CASE("everybody gets everybody's tensors, in the order of the members, twice in a row") {
    for (const int members : {2, 3, 4, 5, 7, 8}) {
      CAPTURE(members);
      run::Group group;
      for (int w = members - 1; w >= 0; --w) group.push_back(WorkerId{w});  // not by number
      Wires wires(members);
      std::atomic<int> same = 0;
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        run::Coordinator coordinator(members);
        const run::Placement placement = one_each(peers.rank(), members);
        const run::GroupView view(group, WorkerId{peers.rank()}, /*first_tag=*/5, placement, peers);
        for (int time = 0; time < 2; ++time) {
          const auto parts = run::all_gather(coordinator, view, tensors_of(peers.rank()));
          bool right = parts.size() == group.size();
          for (std::size_t i = 0; right && i < parts.size(); ++i) {
            const std::vector<at::Tensor> expected = tensors_of(number(group[i]));
            right = parts[i].size() == expected.size();
            for (std::size_t t = 0; right && t < expected.size(); ++t)
              right = parts[i][t].scalar_type() == expected[t].scalar_type() && parts[i][t].equal(expected[t]);
          }
          same += right ? 1 : 0;
        }
      });
      CHECK(same == 2 * members);
    }
  }
}

}  // namespace all_gather_test
