// GPUs of several ranks, played by threads with CPU tensors: who gets a direct way, and what goes over it.
#include "librun/transport/direct_transport.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/queued_work.h"
#include "librun/links/rank_links.h"
#include "librun/transport/direct_ways.h"
#include "librun/transport/rank_transport.h"
#include "tests/support/thread_groups.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace direct_transport_test {

using namespace pp;
using pp::test::ThreadGroups;
using pp::test::ThreadPeers;
using pp::test::Wires;

namespace {

run::Placement one_worker_each(int rank, int ranks) {
  run::Placement placement{.rank = rank, .ranks = ranks};
  for (int r = 0; r < ranks; ++r) placement.rank_of.push_back(r);
  return placement;
}

run::Channel channel(int from, int to, std::optional<DType> dtype = DType::float32) {
  return {.from = WorkerId{from}, .to = WorkerId{to}, .shape = {3}, .dtype = dtype, .per_step = 4, .window = 2};
}

/// The ways of rank 0 to 2, worker r on rank r.
std::vector<run::DirectWays> ways_of(const std::vector<run::Channel>& channels,
                                     const std::vector<run::Group>& groups,
                                     const std::vector<std::string>& identity) {
  const int ranks = static_cast<int>(identity.size());
  std::vector<run::DirectWays> ways(identity.size());
  Wires wires(ranks);
  ThreadGroups all;
  pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
    run::Mailbox mailbox(peers);
    const auto r = static_cast<std::size_t>(peers.rank());
    std::vector<std::string> mine(identity.size());
    mine[r] = identity[r];
    const run::DeviceGroupMaker maker{
        [&] { return all.key(); },
        [&](const std::string& key, int me, int size, WorkerId) { return all.join(key, me, size); }};
    ways[r] = run::find_direct_ways(mailbox, one_worker_each(peers.rank(), ranks), channels, groups, mine,
                                    maker, Seconds(60));
  });
  return ways;
}

/// body(device, group) on a thread that has entered cuda:0, the only member of the group.
template <class Body>
void on_gpu(const Body& body) {
  pp::test::on_own_thread([&] {
    const at::Device device(at::kCUDA, 0);
    profile::open_devices(std::vector{device});
    profile::enter_device(device, 1);
    body(device, *run::join_device_group(run::make_group_key(), 0, 1, device));
  });
}

}  // namespace

TEST_SUITE("librun/transport/direct_transport") {
  TEST_CASE("a lane of channels between GPUs has a group at both ends, an evaluation that of a training's") {
    std::vector<run::Channel> channels{channel(0, 1), channel(1, 0), channel(0, 1),
                                       channel(1, 2), channel(0, 1), channel(0, 1)};
    channels[1].direction = run::Direction::gradient;
    channels[2].direction = run::Direction::evaluation;
    channels[5].lane = 1;
    const auto ways = ways_of(channels, {}, {"a", "b", "c"});
    CHECK(ways[0].all.size() == 3);
    CHECK(ways[1].all.size() == 4);
    CHECK(ways[2].all.size() == 1);
    CHECK(ways[0].channels[0].get() == ways[0].channels[2].get());
    CHECK(ways[0].channels[0].get() == ways[0].channels[4].get());
    CHECK(ways[0].channels[0].get() != ways[0].channels[5].get());
    CHECK(ways[0].channels[0].get() != ways[0].channels[1].get());
    CHECK(ways[0].channels[0]->me() == 0);  // the sender is first
    CHECK(ways[0].channels[1]->me() == 1);
    CHECK(ways[1].channels[0]->me() == 1);
    CHECK_FALSE(ways[0].channels[3]);  // others'
    CHECK(bool(ways[2].channels[3]));
  }

  TEST_CASE("no direct way: one GPU at both ends, a CPU, messages that overtake each other") {
    std::vector<run::Channel> channels{channel(0, 1)};
    CHECK(ways_of(channels, {}, {"a", "a"})[0].all.empty());
    CHECK(ways_of(channels, {}, {"a", ""})[0].all.empty());
    channels[0].in_order = false;
    CHECK(ways_of(channels, {}, {"a", "b"})[0].all.empty());
    const std::vector<run::Group> all{{WorkerId{0}, WorkerId{1}, WorkerId{2}}};
    CHECK_FALSE(ways_of({}, all, {"a", "b", "a"})[2].collectives[0]);
    const auto ways = ways_of({}, all, {"a", "b", "c"});
    CHECK(ways[2].collectives[0]->me() == 2);
    CHECK(ways[2].collectives[0]->size() == 3);
  }

  // Rank 1 does not come to the group that sends to rank 2 (`first`), or rank 2 does not, to which nothing is
  // sent before it has.
  TEST_CASE("a group that does not come about ends the start on all ranks, which name those that are missing") {
    for (const auto& [who, throws, expected] :
         {std::tuple{1, false, "NCCL has not connected the GPUs of ranks 1, 2 for 200 ms: all wait; "},
          std::tuple{2, false, "NCCL has not connected the GPUs of ranks 1, 2 for 200 ms: missing: rank 2; "},
          std::tuple{1, true, "rank 1: no such device"}}) {
      Wires wires(3);
      const auto all = std::make_shared<ThreadGroups>();
      std::promise<void> over;
      const std::shared_future<void> end = over.get_future().share();
      std::vector<std::string> said(3);
      pp::test::on_ranks(wires, [&, who = who, throws = throws](ThreadPeers& peers) {
        run::Mailbox mailbox(peers);
        const int rank = peers.rank();
        std::vector<std::string> mine(3);
        mine[static_cast<std::size_t>(rank)] = std::to_string(rank);
        const run::DeviceGroupMaker maker{
            [all] { return all->key(); },
            [all, end, who, throws, rank](const std::string& key, int me, int size, WorkerId) {
              if (rank == who && me == who - 1) {
                if (throws) throw Error(ErrorKind::run, "no such device");
                end.wait();
              }
              return all->join(key, me, size);
            }};
        try {
          run::find_direct_ways(mailbox, one_worker_each(rank, 3), std::vector{channel(0, 1), channel(1, 2)},
                                {}, mine, maker, Seconds(0.2));
        } catch (const Error& error) {
          said[static_cast<std::size_t>(rank)] = error.what();
        }
      });
      over.set_value();
      for (const int rank : {0, 1, 2}) {
        CAPTURE(rank);
        const std::string& what = said[static_cast<std::size_t>(rank)];
        CHECK(what.starts_with(throws && rank == 1 ? "no such device" : expected));
      }
    }
  }

  // Ten messages on each of two channels, a window of two. Of the one whose type is open the first message of 6
  // bytes goes by the host and says that it is bfloat16; the 19 others go by groups.
  TEST_CASE("messages arrive whole and in order; where the type is open the first one tells it") {
    const std::vector<run::Channel> channels{channel(0, 1), channel(0, 1, std::nullopt)};
    const auto content = [](std::int64_t number, at::ScalarType type) {
      return at::full({1, 3}, static_cast<double>(number), at::TensorOptions(type));
    };
    Wires wires(2);
    ThreadGroups all;
    const std::vector<std::string> keys{all.key(), all.key()};
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      const run::Placement placement = one_worker_each(peers.rank(), 2);
      run::Coordinator coordinator(2);
      run::DeviceGroups groups;
      for (const std::string& key : keys) groups.push_back(all.join(key, peers.rank(), 2));
      const auto transport = run::make_direct_transport(
          coordinator,
          run::make_rank_transport(coordinator, channels, placement, peers, {.autocast = at::kBFloat16}),
          channels, groups);
      for (const int c : {0, 1}) {
        if (peers.rank() == 1) transport->expect(c, 0, 1);
      }
      for (std::int64_t number = 0; number < 10; ++number) {
        for (const int c : {0, 1}) {
          const at::ScalarType type = c == 0 ? at::kFloat : at::kBFloat16;
          if (peers.rank() == 0) {
            transport->send(c, number, content(number, type));
            continue;
          }
          if (number < 9) transport->expect(c, number + 1, 1);
          const at::Tensor found = transport->receive(c, number);
          CHECK(bool(found.scalar_type() == type));
          CHECK(found.equal(content(number, type)));
        }
      }
    });
    CHECK(all.messages() == 19);
    CHECK(wires.sent() == 6);
  }

  // Seven elements of three members are slices of 2, 2 and 3; two elements leave the first member without any.
  TEST_CASE("sums have the bits of ((m0 + m1) + m2), also where slices are empty; fast ones are close") {
    for (const std::int64_t size : {7, 2, 1000}) {
      for (const bool fast : {false, true}) {
        std::vector<at::Tensor> parts;
        for (int i = 0; i < 3; ++i) parts.push_back(at::randn({size}));
        const at::Tensor expected = parts[0].add(parts[1]).add(parts[2]);
        Wires wires(3);
        ThreadGroups all;
        const std::string key = all.key();
        pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
          const auto r = static_cast<std::size_t>(peers.rank());
          run::Coordinator coordinator(3);
          const std::vector<run::Group> groups{{WorkerId{0}, WorkerId{1}, WorkerId{2}}};
          const run::Placement placement = one_worker_each(peers.rank(), 3);
          const auto collectives =
              run::make_direct_collectives(run::make_rank_collectives(coordinator, groups, placement, peers),
                                           {all.join(key, peers.rank(), 3)}, fast);
          collectives->sum(0, WorkerId{peers.rank()}, parts[r]);
        });
        for (const at::Tensor& part : parts) {
          if (!fast) CHECK(part.equal(expected));
          CHECK(part.allclose(expected, 1e-5, 1e-6));
        }
        CHECK(wires.sent() == 0);
      }
    }
  }

  // Ranks ask after them at different moments: the last one never does before it must. By GPUs sums are handed
  // out when they begin: for each bucket a member has sent two slices to be added, and its own sum twice.
  TEST_CASE("sums that are under way together have the bits of ((m0 + m1) + m2), by GPUs and by hosts") {
    for (const bool direct : {true, false}) {
      std::vector<at::Tensor> parts, expected;
      for (int i = 0; i < 3; ++i) parts.push_back(at::randn({1000}));
      const auto bucket = [&](std::size_t rank, std::int64_t b) { return parts[rank].narrow(0, 250 * b, 250); };
      for (std::int64_t b = 0; b < 4; ++b) expected.push_back(bucket(0, b).add(bucket(1, b)).add(bucket(2, b)));
      Wires wires(3);
      ThreadGroups all;
      const std::string key = all.key();
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        run::Coordinator coordinator(3);
        const std::vector<run::Group> groups{{WorkerId{0}, WorkerId{1}, WorkerId{2}}};
        const run::Placement placement = one_worker_each(peers.rank(), 3);
        std::unique_ptr<run::Collectives> collectives =
            run::make_rank_collectives(coordinator, groups, placement, peers);
        if (direct) {
          collectives = run::make_direct_collectives(std::move(collectives), {all.join(key, peers.rank(), 3)},
                                                     /*fast=*/false);
        }
        std::vector<std::unique_ptr<run::PendingSum>> begun;
        for (std::int64_t b = 0; b < 4; ++b) {
          begun.push_back(collectives->begin_sum(0, WorkerId{peers.rank()},
                                                 bucket(static_cast<std::size_t>(peers.rank()), b)));
          if (peers.rank() < 2) begun.front()->advance();
        }
        if (direct) {
          CHECK(begun.back()->advance());
          begun.back()->finish();  // which all members' messages have come before
          CHECK(all.messages() >= 4 * (2 + 2));
        }
        for (const auto& sum : begun) sum->add();
        for (const auto& sum : begun) sum->finish();
      });
      for (std::size_t rank = 0; rank < 3; ++rank) {
        for (std::int64_t b = 0; b < 4; ++b)
          CHECK(bucket(rank, b).equal(expected[static_cast<std::size_t>(b)]));
      }
      CHECK((wires.sent() == 0) == direct);
    }
  }

  TEST_CASE("the meter of links measures what a device group hands over") {
    ThreadGroups all;
    const std::string key = all.key();
    Wires wires(2);
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      Device device;
      device.index = 5;
      const auto medium = run::make_group_medium(all.join(key, peers.rank(), 2), device);
      CHECK(medium->device().index == 5);
      medium->set_size(Bytes(64));
      if (peers.rank() == 0) medium->send(1);
      medium->receive(1 - peers.rank());
      if (peers.rank() == 1) medium->send(0);
      medium->all_reduce();
    });
    CHECK(all.messages() == 2 + 2);  // there and back, and each one's part of the sum
  }
}

// The imitation of a GPU has communicators of one.
TEST_SUITE("gpu/librun/transport/nccl") {
  TEST_CASE("a communicator of one: what it sends to itself arrives, and its sum is what it brings") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::Tensor sent = at::arange(1000, at::TensorOptions(device).dtype(at::kFloat));
      const at::Tensor received = at::empty_like(sent);
      group.together([&] {
        group.send(0, sent);
        group.receive(0, received);
      });
      group.sum(sent);
      const auto mark = group.mark();
      mark->hold_back();
      CHECK(received.cpu().equal(at::arange(1000, at::kFloat)));
      CHECK(sent.cpu().equal(at::arange(1000, at::kFloat)));
      CHECK(mark->done());
      CHECK(group.failure() == "");
    });
  }

  // NCCL hands calls to the device later: a place behind them is no place before.
  TEST_CASE("a place is behind the calls before it and before the calls after it") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
      const at::Tensor room = at::full({1000}, 0.0, options);
      std::vector<std::unique_ptr<run::DeviceGroup::Mark>> marks;
      std::vector<at::Tensor> found;
      for (int i = 1; i <= 3; ++i) {
        const at::Tensor sent = at::full({1000}, static_cast<double>(i), options);
        group.together([&] {
          group.send(0, sent);
          group.receive(0, room);
        });
        marks.push_back(group.mark());
        marks.back()->hold_back();
        found.push_back(room.clone());
      }
      for (int i = 1; i <= 3; ++i) CHECK(found[static_cast<std::size_t>(i - 1)].eq(i).all().item<bool>());
      for (const auto& mark : marks) CHECK(mark->done());
    });
  }

  TEST_CASE("a call returns before NCCL has handed it to the device, and a place is asked without waiting") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::Tensor sent = at::full({1000}, 3.0, at::TensorOptions(device).dtype(at::kFloat));
      const at::Tensor received = at::zeros_like(sent);
      group.together([&] {
        group.send(0, sent);
        group.receive(0, received);
      });
      const auto mark = group.mark();
      for (int i = 0; i < 100'000 && !mark->done(); ++i) continue;
      CHECK(mark->done());
      mark->hold_back();
      CHECK(received.cpu().equal(sent.cpu()));
    });
  }

  // Nothing of the group's stream is left to be done when the tensor is dropped: not even the message.
  TEST_CASE("what is sent stays until NCCL has handed it to the device") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
      at::Tensor sent = at::full({1 << 20}, 3.0, options);
      const at::Tensor received = at::zeros_like(sent);
      group.together([&] {
        group.send(0, sent);
        group.receive(0, received);
      });
      profile::wait_for(device);
      sent.reset();
      const at::Tensor other = at::full({1 << 20}, 7.0, options);
      profile::wait_for(device);
      group.mark()->hold_back();
      CHECK(received.eq(3).all().item<bool>());
    });
  }

  TEST_CASE("calls that throw leave no group open: the next ones are handed over") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::Tensor sent = at::full({1000}, 3.0, at::TensorOptions(device).dtype(at::kFloat));
      const at::Tensor received = at::zeros_like(sent);
      const auto lost = [&] {
        group.send(0, sent);
        throw std::runtime_error("lost");
      };
      CHECK_THROWS_WITH(group.together(lost), "lost");
      group.together([&] {
        group.send(0, sent);
        group.receive(0, received);
      });
      group.mark()->hold_back();
      CHECK(received.cpu().equal(sent.cpu()));
    });
  }

  TEST_CASE("a group that is given up between its calls leaves the communicator alone") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::Tensor tensor = at::full({1000}, 3.0, at::TensorOptions(device).dtype(at::kFloat));
      const auto calls = [&] {
        group.send(0, tensor);
        group.receive(0, tensor);
        group.abort();
      };
      CHECK_THROWS_WITH(group.together(calls), "NCCL: the group was given up");
      CHECK(group.failure() == "given up");
    });
  }

  // While a graph is captured LibTorch's allocator forgets uses that it is told of.
  TEST_CASE("what is sent while another thread records stays until it is sent") {
    PP_NEEDS_CUDA(1);
    on_gpu([](const at::Device& device, run::DeviceGroup& group) {
      const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
      at::Tensor sent = at::full({1 << 20}, 3.0, options);
      const at::Tensor received = at::zeros_like(sent);
      std::promise<void> records, is_sent;
      std::thread recorder([&] {
        profile::enter_device(device, 1);
        at::Tensor number = at::full({1}, 1.0, options);
        number.add_(1);
        const auto recording = profile::make_recording(device);
        recording->record([&] {
          number.add_(1);
          records.set_value();
          is_sent.get_future().wait_for(std::chrono::milliseconds(300));
        });
      });
      records.get_future().wait();
      group.together([&] {
        group.send(0, sent);
        group.receive(0, received);
      });
      is_sent.set_value();
      recorder.join();
      sent.reset();
      const at::Tensor other = at::full({1 << 20}, 7.0, options);
      profile::wait_for(device);
      group.mark()->hold_back();
      CHECK(received.eq(3).all().item<bool>());
    });
  }
}

}  // namespace direct_transport_test
