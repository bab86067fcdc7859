// What members of a group exchange: slices of sums, and everybody's tensors.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/direct_transport.h"
#include "librun/transport/rank_sums.h"
#include "librun/transport/rank_transport.h"
#include "tests/support/thread_groups.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

namespace slices_test {

using namespace pp;
using pp::test::ThreadPeers;
using pp::test::Wires;
using run::Slice;

namespace {

constexpr std::size_t kMembers = 3;
constexpr std::int64_t kLength = 20;

// Member 1 has two slices, elements 3, 4 and 19 are nobody's.
const std::vector<Slice> kSlices{{0, 0, 3}, {1, 5, 9}, {2, 9, 17}, {1, 17, 19}};

struct Vectors {
  Vectors() {
    for (std::size_t i = 0; i < kMembers; ++i) {
      parts.push_back(at::randn({kLength}));
      values.push_back(at::full({kLength}, 1.0 + static_cast<double>(i)));
    }
    expected = parts[0].add(parts[1]).add(parts[2]);
  }
  std::vector<at::Tensor> parts, values;
  at::Tensor expected;

  void run(run::Collectives& collectives, std::size_t member) const {
    const WorkerId me{static_cast<int>(member)};
    collectives.reduce(0, me, parts[member], kSlices);
    collectives.spread(0, me, values[member], kSlices);
  }
  void check() const {
    for (const Slice& slice : kSlices) {
      const auto part = [&](const at::Tensor& vector) { return vector.narrow(0, slice.begin, slice.length()); };
      CHECK(part(parts[slice.owner]).equal(part(expected)));
      for (const at::Tensor& value : values)
        CHECK(part(value).eq(1.0 + static_cast<double>(slice.owner)).all().item<bool>());
    }
    for (std::size_t i = 0; i < kMembers; ++i) {
      for (const std::int64_t free : {3, 4, 19})
        CHECK(values[i][free].item<double>() == 1.0 + static_cast<double>(i));
    }
  }
};

const std::vector<run::Group> kGroups{{WorkerId{0}, WorkerId{1}, WorkerId{2}}};

run::Placement placed(int rank, std::vector<int> rank_of) {
  return {.rank = rank, .ranks = rank_of.back() + 1, .rank_of = std::move(rank_of)};
}

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

TEST_SUITE("librun/transport/slices") {
  TEST_CASE("what of slices lies in a part, and equal ones") {
    CHECK((run::slices_within(kSlices, 4, 18) == std::vector<Slice>{{1, 1, 5}, {2, 5, 13}, {1, 13, 14}}));
    CHECK((run::equal_slices(7, 3) == std::vector<Slice>{{0, 0, 2}, {1, 2, 4}, {2, 4, 7}}));
  }

  TEST_CASE("within a process: the owner has ((m0 + m1) + m2) of its slices, then everybody has each owner's") {
    const Vectors vectors;
    run::Coordinator coordinator(static_cast<int>(kMembers));
    const auto collectives = run::make_in_process_collectives(coordinator, kGroups);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kMembers; ++i) threads.emplace_back([&, i] { vectors.run(*collectives, i); });
    for (std::thread& thread : threads) thread.join();
    vectors.check();
  }

  // Of 17 elements that have an owner each goes to two others, and as many come: (q-1) times 17 floats each
  // way.
  TEST_CASE("between ranks, by hosts and by groups of GPUs: the same, in (q-1)/q of the bytes each way") {
    for (const bool direct : {false, true}) {
      const Vectors vectors;
      Wires wires(static_cast<int>(kMembers), /*late=*/!direct);
      pp::test::ThreadGroups all;
      const std::string key = all.key();
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        run::Coordinator coordinator(static_cast<int>(kMembers));
        const run::Placement placement = placed(peers.rank(), {0, 1, 2});
        std::unique_ptr<run::Collectives> collectives =
            run::make_rank_collectives(coordinator, kGroups, placement, peers);
        if (direct) {
          collectives =
              run::make_direct_collectives(std::move(collectives), {all.join(key, peers.rank(), 3)}, false);
        }
        vectors.run(*collectives, static_cast<std::size_t>(peers.rank()));
      });
      vectors.check();
      CHECK(wires.sent() == (direct ? 0 : (2 + 2) * 17 * sizeof(float)));
    }
  }

  TEST_CASE("several workers of a rank have messages of their own") {
    const Vectors vectors;
    Wires wires(2);
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      run::Coordinator coordinator(static_cast<int>(kMembers));
      const run::Placement placement = placed(peers.rank(), {0, 0, 1});
      const auto collectives = run::make_rank_collectives(coordinator, kGroups, placement, peers);
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < kMembers; ++i) {
        if (placement.here(WorkerId{static_cast<int>(i)}))
          threads.emplace_back([&, i] { vectors.run(*collectives, i); });
      }
      for (std::thread& thread : threads) thread.join();
    });
    vectors.check();
  }

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

}  // namespace slices_test
