// What a warm check tries: a wrong content is found wherever it comes from, sums are exact, ranks see one
// report.
#include "librun/drive/exercises.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/device/process.h"
#include "librun/links/ping_pong.h"
#include "librun/transport/mailbox.h"
#include "librun/warm.h"
#include "tests/librun/models.h"
#include "tests/support/plans.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

namespace exercises_test {

using namespace pp;
using run::Exercise;
using run::Team;

namespace {

/// What arrives is as `change` makes it of what was sent.
class Damaged final : public run::Transport {
 public:
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  Damaged(std::unique_ptr<run::Transport> real, Change change)
      : real_(std::move(real)), change_(std::move(change)) {}
  void expect(int channel, std::int64_t number, int rows) override { real_->expect(channel, number, rows); }
  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    real_->send(channel, number, std::move(tensor));
  }
  at::Tensor receive(int channel, std::int64_t number) override {
    return change_(real_->receive(channel, number));
  }

 private:
  std::unique_ptr<run::Transport> real_;
  Change change_;
};

/// The first byte of each tensor that comes to this rank is another one.
class Damaging final : public run::Peers {
 public:
  explicit Damaging(run::Peers& real) : Peers(real.rank(), real.size()), real_(real) {}
  std::string host() const override { return real_.host(); }
  int largest_tag() const override { return real_.largest_tag(); }
  std::unique_ptr<run::Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t room,
                                    Sent sent) override {
    return real_.send(to, bytes, room, sent);
  }
  std::unique_ptr<run::Posted> receive(const Address& from, std::span<std::byte> room) override {
    auto posted = real_.receive(from, room);
    if (from.lane != Lane::tensors) return posted;
    return std::make_unique<Flipping>(std::move(posted), room);
  }
  std::unique_ptr<run::Posted> send_letter(int to, std::span<const std::byte> bytes) override {
    return real_.send_letter(to, bytes);
  }
  std::optional<ControlMessage> next_control_message() override { return real_.next_control_message(); }
  int join(std::span<const int> ranks) override { return real_.join(ranks); }
  std::unique_ptr<run::Posted> sum(int group, std::span<std::byte> elements, Element type) override {
    return real_.sum(group, elements, type);
  }
  bool sending() override { return real_.sending(); }
  [[noreturn]] void abort(int) override { std::terminate(); }

 private:
  struct Flipping final : run::Posted {
    Flipping(std::unique_ptr<run::Posted> what, std::span<std::byte> to) : posted(std::move(what)), room(to) {}
    bool done() override {
      if (flipped || !posted->done()) return flipped;
      room.front() ^= std::byte{1};
      return flipped = true;
    }
    std::size_t bytes() const override { return posted->bytes(); }
    std::unique_ptr<run::Posted> posted;
    std::span<std::byte> room;
    bool flipped = false;
  };

  run::Peers& real_;
};

/// What each of two ranks says that has a stage each; `ways(peers, warm)` calls warm with what it has of peers.
template <class WaysOf>
std::vector<std::string> errors_of_ranks(const run::RunOptions& options, const WaysOf& ways) {
  const plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {2}});
  test::Wires wires(2);
  std::vector<std::string> errors(2);
  test::on_ranks(wires, [&](test::ThreadPeers& peers) {
    try {
      ways(peers, [&](run::Peers& mine) { run::warm_together(mine, plan, options, Bytes(0)); });
    } catch (const run::SaidElsewhere&) {
      errors[static_cast<std::size_t>(peers.rank())] = "said elsewhere";
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(peers.rank())] = error.what();
    }
  });
  return errors;
}

/// Of `workers` threads, whose last group is all of them. Returns what each of them measured.
std::vector<at::Tensor> perform(int workers, const std::vector<run::Channel>& channels,
                                std::vector<run::Group> groups, const std::vector<Exercise>& all,
                                const Damaged::Change& change = {}) {
  Team team(workers, [](int) {});
  run::Group& everybody = groups.emplace_back();
  for (int w = 0; w < workers; ++w) everybody.push_back(WorkerId{w});
  const std::size_t last = groups.size() - 1;
  auto transport = run::make_in_process_transport(team.coordinator(), channels);
  if (change) transport = std::make_unique<Damaged>(std::move(transport), change);
  const auto collectives = run::make_in_process_collectives(team.coordinator(), std::move(groups));
  const run::Ways ways{
      team.coordinator(), *transport, *collectives,
      channels,           last,       [](run::Coordinator::Clock::time_point time) { return time; }};
  std::vector<at::Tensor> times(static_cast<std::size_t>(workers));
  team.run(
      [&](int me) { times[static_cast<std::size_t>(me)] = run::exercise(ways, WorkerId{me}, at::kCPU, all); });
  return times;
}

/// A message of 2 samples of 3 numbers from worker 0 to worker 1.
std::string error_of_message(const Damaged::Change& change) {
  const std::vector<run::Channel> channels{{.from = WorkerId{0}, .to = WorkerId{1}, .shape = {3}}};
  Exercise one{.sizes = {2, 3}};
  one.exchange = {.workers = {WorkerId{0}, WorkerId{1}}, .what = "activation of fc", .bytes = Bytes(24)};
  try {
    perform(2, channels, {}, {one}, change);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Exercise in_group(Exercise::Kind kind, int members, std::int64_t elements, at::ScalarType type) {
  Exercise one{.kind = kind, .number = 0, .sizes = {elements}, .type = type};
  for (int w = 0; w < members; ++w) one.exchange.workers.push_back(WorkerId{w});
  one.exchange.what = "sum";
  return one;
}

}  // namespace

TEST_SUITE("librun/exercises") {
  TEST_CASE("a message that arrives with another content, type or shape is named") {
    CHECK(error_of_message([](const at::Tensor& tensor) { return tensor; }) == "");
    CHECK(error_of_message([](const at::Tensor& tensor) {
            at::Tensor other = tensor.clone();
            other[1][1].add_(1);
            return other;
          }) ==
          "the activation of fc from worker 0 to worker 1: arrived with another content than it was sent with: "
          "1 of 6 elements, the first at position 4; look at the link, and at what lies under it");
    CHECK(error_of_message([](const at::Tensor& tensor) { return tensor.to(at::kDouble); }) ==
          "the activation of fc from worker 0 to worker 1: arrived with another type or shape than it was sent "
          "with");
    CHECK(error_of_message([](const at::Tensor& tensor) {
            return tensor.view({3, 2});
          }).ends_with("sent with"));
  }

  TEST_CASE("a message that comes in the place of another one is found") {
    std::optional<at::Tensor> first;
    const std::string error = error_of_message([&](const at::Tensor& tensor) {
      if (!first) first = tensor;
      return *first;
    });
    CHECK(error.find("6 of 6 elements") != std::string::npos);
  }

  // Half types hold whole numbers up to 256: what members bring must not make a larger sum.
  TEST_CASE("sums, shares and gathers are exact in half types, whatever the number of members") {
    for (const int members : {2, 3, 5}) {
      CAPTURE(members);
      Exercise shares = in_group(Exercise::Kind::shares, members, 1000, at::kFloat);
      shares.weights = at::kBFloat16;
      for (const run::Slice& slice : run::equal_slices(900, static_cast<std::size_t>(members)))
        shares.slices.push_back(slice);
      std::vector<Exercise> all{in_group(Exercise::Kind::sum, members, 1000, at::kBFloat16), shares,
                                in_group(Exercise::Kind::gather, members, 77, at::kHalf)};
      const std::vector<at::Tensor> times = perform(members, {}, {all.front().exchange.workers}, all);
      run::set_measured(all, {}, times);
      for (const Exercise& one : all) CHECK(one.exchange.measured > Seconds(0));
    }
  }

  TEST_CASE("a message's time is from when it leaves to when it is there, a group's that of its last member") {
    const std::vector<run::Channel> channels{{.from = WorkerId{1}, .to = WorkerId{0}, .shape = {3}}};
    std::vector<Exercise> all{Exercise{}, in_group(Exercise::Kind::sum, 2, 1, at::kFloat)};
    const auto times = [](std::vector<std::int64_t> message, std::vector<std::int64_t> sum) {
      return at::stack({at::tensor(message), at::tensor(sum)});
    };
    run::set_measured(
        all, channels,
        {times({15, 25, 45, 55, 90}, {10, 10, 10, 10, 10}), times({10, 20, 30, 40, 50}, {20, 5, 40, 30, 50})});
    // 5, 5, 15, 15, 40 and 20, 10, 40, 30, 50 ns: the medians.
    CHECK(all[0].exchange.measured.count() == doctest::Approx(15e-9));
    CHECK(all[1].exchange.measured.count() == doctest::Approx(30e-9));
  }

  TEST_CASE("ranks try the messages and sums of their plan, and all get the report") {
    // Stage 0 is fc0 [6, 5] with tanh, on two workers; a micro-batch of 2 samples has 12 numbers behind it. Its
    // gradient has places of 32 and 16 elements.
    const plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {2}, .replicas = {2, 1}});
    const auto check = [](const run::WarmReport& report) {
      REQUIRE(report.messages.size() == 4);
      for (const run::WarmExchange& one : report.messages) {
        CHECK(one.bytes == Bytes(48));
        CHECK(one.what == (one.workers[1] == WorkerId{2} ? "activation of tanh0" : "gradient of tanh0"));
      }
      REQUIRE(report.sums.size() == 1);
      CHECK(report.sums[0].bytes == Bytes(192));
      CHECK((report.sums[0].workers == run::Group{WorkerId{0}, WorkerId{1}}));
      CHECK(report.devices.size() == 3);
      CHECK(report.left_out.empty());
    };
    check(run::warm(plan, {}));
    for (const int ranks : {2, 3}) {
      CAPTURE(ranks);
      test::Wires wires(ranks, /*late=*/true);
      std::vector<std::optional<run::WarmReport>> reports(static_cast<std::size_t>(ranks));
      test::on_ranks(wires, [&](test::ThreadPeers& peers) {
        reports[static_cast<std::size_t>(peers.rank())] = run::warm_together(peers, plan, {}, Bytes(0));
      });
      for (const auto& report : reports) {
        check(*report);
        CHECK(report->ranks == ranks);
      }
    }
  }

  TEST_CASE("rank 0 says which message arrived damaged on another rank") {
    const std::vector<std::string> errors = errors_of_ranks({}, [](test::ThreadPeers& peers, const auto& warm) {
      Damaging damaging(peers);
      peers.rank() == 1 ? warm(damaging) : warm(peers);
    });
    CHECK(errors[0].starts_with(
        "rank 1: the activation of tanh0 from worker 0 to worker 1: arrived with another content"));
    CHECK(errors[1] == "said elsewhere");
  }

  TEST_CASE("a rank that does not come is named by the one that waits") {
    run::RunOptions options;
    options.stall_timeout = Seconds(0.03);
    const std::vector<std::string> errors =
        errors_of_ranks(options, [](test::ThreadPeers& peers, const auto& warm) {
          if (peers.rank() == 0) warm(peers);
        });
    CHECK(errors[0] ==
          "rank 1 has not begun for 300 ms: it hangs, was stopped, or cannot be reached; look at its host");
  }

  TEST_CASE("shared weights of two stages are exchanged between these") {
    // shared0 is a linear [6, 6] with 6 biases: 42 numbers.
    const run::WarmReport report = run::warm(make_plan({.model = test::shared_mlp(), .cuts = {4, 6}}), {});
    REQUIRE(report.sums.size() == 1);
    CHECK(report.sums[0].bytes == Bytes(168));
    CHECK(report.sums[0].what.starts_with("gradients of shared shared0.weight"));
  }

#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  TEST_CASE("memory of messages and sums, which is kept for the next ones, is none of communicators") {
    // Messages of 65536 samples of 6 numbers: 1.5 MiB, of which sender, transport and receiver have some each.
    profile::prepare_process();
    const plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {2}, .mini_batch = 1 << 18});
    const run::WarmReport report = run::warm(plan, {});
    REQUIRE(report.messages[0].bytes == Bytes(3 << 19));
    for (const run::WarmDevice& one : report.devices) CHECK(one.taken < Bytes(3 << 19));
  }
#endif

  TEST_CASE("what the link of the plan promises stands beside, and devices are full with what was taken") {
    plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {2}, .memory = Bytes(1)});
    Level& level = plan.levels.emplace_back();
    level.name = "host";
    level.devices = 2;
    level.bandwidth = BytesPerSecond(48e6);
    level.latency = Seconds(1e-6);
    const run::WarmReport report = run::warm(plan, {});
    for (const run::WarmExchange& one : report.messages) CHECK(one.promised.count() == doctest::Approx(2e-6));
    for (const run::WarmDevice& one : report.devices) {
      CHECK(one.memory == Bytes(1));
      CHECK(one.fits() == (one.taken <= Bytes(1)));
    }
  }
}

}  // namespace exercises_test
