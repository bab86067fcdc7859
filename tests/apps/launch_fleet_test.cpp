// What pp-run launch --keep-going decides: hosts that are there, devices that are left, the next plan.
#include "apps/run/keep_going/fleet.h"
#include "apps/run/keep_going/keep_going.h"
#include "apps/run/keep_going/next_plan.h"

#include <string>
#include <vector>

#include "tests/librun/models.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace launch_fleet_test {
namespace {

using pp::run_tool::devices_left;
using pp::run_tool::Fleet;
using pp::run_tool::Host;
using pp::run_tool::HostAnswer;
using Words = std::vector<std::string>;
using Answers = std::vector<std::optional<HostAnswer>>;

const std::optional<HostAnswer> kNone, kCores = HostAnswer{4, 0};

std::vector<std::string> names(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

/// A device on each of these nodes; a worker on each.
pp::plan::Plan plan_on(const Words& nodes, pp::DeviceKind kind = pp::DeviceKind::cpu) {
  PlanSpec spec{.model = pp::test::mlp(4)};
  for (std::size_t i = 1; i < nodes.size(); ++i) spec.cuts.push_back(static_cast<int>(i));
  pp::plan::Plan plan = make_plan(spec);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    plan.devices[i].node = nodes[i];
    plan.devices[i].kind = kind;
  }
  return plan;
}

}  // namespace

TEST_SUITE("apps/launch_fleet") {
  TEST_CASE("a host that does not answer is lost, comes back, and is left out the third time") {
    Fleet fleet({{"a", 1}, {"b", 2}});
    const std::string line = "host b does not answer";
    for (int loss = 1; loss <= 2; ++loss) {
      CHECK(fleet.note({kCores, kNone}) == Words{line});
      CHECK(names(fleet.there()) == Words{"a"});
      CHECK(names(fleet.away()) == Words{"b"});
      CHECK(fleet.note({kCores}).empty());  // those that are there are asked
      CHECK_FALSE(fleet.take_back("b", kNone));
      CHECK(fleet.take_back("b", kCores));
      CHECK(names(fleet.there()) == Words{"a", "b"});
    }
    CHECK(fleet.note({kCores, kNone}) == Words{line + ", for the third time: it is left out from now on"});
    CHECK(fleet.away().empty());
  }

  TEST_CASE("of several hosts one without all of its GPUs is lost; the only host goes on with those it has") {
    Fleet two({{"a", 1}, {"b", 1}});
    two.note_devices({HostAnswer{4, 4}, HostAnswer{4, 4}});
    CHECK(two.note({HostAnswer{4, 4}, HostAnswer{4, 3}}) == Words{"host b has 3 of 4 GPUs"});
    CHECK(names(two.there()) == Words{"a"});
    CHECK_FALSE(two.take_back("b", HostAnswer{4, 3}));
    CHECK(two.take_back("b", HostAnswer{4, 4}));

    Fleet one({{"a", 4}});
    one.note_devices({HostAnswer{4, 4}});
    CHECK(one.note({HostAnswer{4, 3}}) == Words{"host a has 3 of 4 GPUs"});
    CHECK(names(one.there()) == Words{"a"});
    CHECK(one.gone() == 1);
    CHECK(one.note({HostAnswer{4, 3}}).empty());
    CHECK(devices_left(plan_on({"", "", "", ""}, pp::DeviceKind::cuda), one.there(), 0, one.gone()) ==
          std::vector<int>{0, 1, 2});
    CHECK(one.note({HostAnswer{4, 0}}) == Words{"host a has 0 of 4 GPUs"});
    CHECK(one.there().empty());
  }

  TEST_CASE("nodes are kept where the host of their name is there, else in order; spare hosts stay idle") {
    const pp::plan::Plan plan = plan_on({"a", "a", "b", "b"});
    CHECK(devices_left(plan, {{"b", 2}}, 0, 0) == std::vector<int>{2, 3});
    CHECK(devices_left(plan, {{"x", 2}}, 0, 0) == std::vector<int>{0, 1});
    CHECK(devices_left(plan, {{"x", 2}, {"b", 2}}, 0, 0) == std::vector<int>{0, 1, 2, 3});
    CHECK(devices_left(plan, {{"x", 2}, {"b", 2}}, 1, 0) == std::vector<int>{2, 3});
    CHECK(devices_left(plan, {{"x", 2}}, 1, 0) == std::vector<int>{0, 1});  // the last one works
  }

  TEST_CASE("a plan without nodes keeps as many devices as there are slots") {
    const pp::plan::Plan plan = plan_on({"", "", "", ""});
    CHECK(devices_left(plan, {{"x", 3}}, 0, 0) == std::vector<int>{0, 1, 2});
    CHECK(devices_left(plan, {{"x", 1}, {"y", 8}}, 0, 0) == std::vector<int>{0, 1, 2, 3});
    CHECK(devices_left(plan, {{"x", 1}, {"y", 8}}, 1, 0) == std::vector<int>{0});
  }

  TEST_CASE("a plan fits where it has as many ranks as before") {
    using pp::run_tool::fits;
    const auto nodes = pp::run_tool::placed(plan_on({"a", "b"}), "p.json", {{"x", 1}, {"y", 1}, {"z", 1}});
    CHECK(fits(nodes, {{"y", 1}, {"z", 1}}));
    CHECK_FALSE(fits(nodes, {{"y", 2}}));
    const auto flat = pp::run_tool::placed(plan_on({"", "", "", ""}), "p.json", {{"x", 2}, {"y", 2}});
    CHECK(fits(flat, {{"z", 4}}));
    CHECK_FALSE(fits(flat, {{"x", 2}}));  // two workers a rank, which have a core each at most
  }

  TEST_CASE("without a profile nothing is planned anew, and why is said") {
    const auto first = pp::run_tool::placed(plan_on({"a", "b"}), "p.json", {{"a", 1}, {"b", 1}});
    const auto found = pp::run_tool::next_plan({.first = first, .profile = {}}, first, {{"a", 1}}, 0);
    REQUIRE(std::holds_alternative<pp::plan::Infeasible>(found));
    CHECK(std::get<pp::plan::Infeasible>(found).reason.ends_with("give it with --profile FILE"));
  }

  TEST_CASE("a host's answer is found among what a launcher prints") {
    using pp::run_tool::parse_answer;
    CHECK(parse_answer("Warning: added to the list of known hosts\n{\"cores\":[0,2],\"cuda\":1}\n") ==
          HostAnswer{2, 1});
    CHECK_FALSE(parse_answer("{\"cores\":[0,"));
    CHECK_FALSE(parse_answer(""));
  }

  TEST_CASE("an option among arguments, in both forms") {
    using pp::run_tool::value_of;
    using pp::run_tool::with_value;
    const Words both{"--data", "x", "--checkpoint", "ck", "--resume=old"};
    CHECK(value_of(both, "--checkpoint") == "ck");
    CHECK(value_of(both, "--resume") == "old");
    CHECK_FALSE(value_of(both, "--every"));
    CHECK_FALSE(value_of({"--checkpoint"}, "--checkpoint"));
    CHECK(with_value(both, "--resume", "ck") == Words{"--resume", "ck", "--data", "x", "--checkpoint", "ck"});
    CHECK(with_value({"--resume", "old", "-q"}, "--resume", "ck") == Words{"--resume", "ck", "-q"});
  }
}

}  // namespace launch_fleet_test
