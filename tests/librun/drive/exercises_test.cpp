// What a warm check tries: a wrong content is found wherever it comes from, sums are exact, ranks see one
// report.
#include "librun/drive/exercises.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "librun/links/ping_pong.h"
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

  TEST_CASE("shared weights of two stages are exchanged between these") {
    // shared0 is a linear [6, 6] with 6 biases: 42 numbers.
    const run::WarmReport report = run::warm(make_plan({.model = test::shared_mlp(), .cuts = {4, 6}}), {});
    REQUIRE(report.sums.size() == 1);
    CHECK(report.sums[0].bytes == Bytes(168));
    CHECK(report.sums[0].what.starts_with("gradients of shared shared0.weight"));
  }

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
