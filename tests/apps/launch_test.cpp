// pp-run launch: which ranks on which hosts, by which command. What it prints: launching.txt.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run/launch_command.h"
#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/models.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

namespace launch_test {
namespace {

using namespace pp::run_tool;
using Words = std::vector<std::string>;

/// A stage for each worker; the devices have these nodes.
pp::plan::Plan plan_on(const std::vector<std::string>& nodes) {
  PlanSpec spec{.model = pp::test::mlp(static_cast<int>(nodes.size()))};
  for (int s = 1; s < static_cast<int>(nodes.size()); ++s) spec.cuts.push_back(2 * s);
  pp::plan::Plan plan = make_plan(spec);
  REQUIRE(plan.workers.size() == nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) plan.devices[i].node = nodes[i];
  return plan;
}

/// Per worker.
pp::plan::Plan with_ranks(pp::plan::Plan plan, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) plan.workers[i].rank = ranks[i];
  return plan;
}

Words command(const pp::plan::Plan& plan, const std::vector<Host>& hosts, Launcher launcher) {
  return launch_command(plan, hosts, launcher,
                        {.program = "pp-run", .plan = "p.json", .arguments = {"--steps", "4"}});
}

template <class Call>
std::string refusal(Call&& call) {
  return pp::test::error_of([&] { call(); });
}

}  // namespace

TEST_SUITE("apps/launch") {
  TEST_CASE("a hosts file: slots, comments, the colon form, a host that comes twice") {
    const std::vector<Host> hosts =
        parse_hosts("# two racks\nnode1 slots=4 max_slots=8\n\n  node2   # one slot\nnode3:2\nnode1 slots=1\n");
    CHECK(hosts == std::vector<Host>{{"node1", 5}, {"node2", 1}, {"node3", 2}});
  }

  TEST_CASE("a line of the hosts file that cannot be is refused with its number") {
    const std::string remedy = "; write lines as: node1 slots=4";
    CHECK(refusal([] { parse_hosts("a slots=2\nb slots=none\n"); }) ==
          "line 2: slots = \"none\" is not a whole number from 1 to 1000000" + remedy);
    CHECK(refusal([] { parse_hosts("a slots=0\n"); }) ==
          "line 1: slots = \"0\" is not a whole number from 1 to 1000000" + remedy);
    CHECK(refusal([] { parse_hosts("a cores=2\n"); }) == "line 1: unknown word \"cores=2\"" + remedy);
    CHECK(refusal([] { parse_hosts("slots=2\n"); }) == "line 1: no host in front" + remedy);
    CHECK(refusal([] { parse_hosts("a slots=1000001\n"); }) ==
          "line 1: slots = \"1000001\" is not a whole number from 1 to 1000000" + remedy);
    for (const std::string name : {"-oProxyCommand", "a,b", "a;b", "$(a)", "a/b"})
      CHECK(refusal([&] { parse_hosts("x\n" + name + " slots=2\n"); }) ==
            "line 2: \"" + name + "\" is no name of a host: letters, digits, dots, dashes within" + remedy);
    CHECK(refusal([] { parse_hosts("# nobody\n"); }) ==
          "no host in it; write a line for each as: node1 slots=4");
  }

  TEST_CASE("a plan without nodes fills the slots in order, a rank for each slot and at most one a worker") {
    const pp::plan::Plan plan = plan_on({"", "", "", ""});
    CHECK(place_ranks(plan, {{"x", 3}, {"y", 8}}) == HostOfRank{0, 0, 0, 1});
    CHECK(place_ranks(plan, {{"x", 1}, {"y", 1}}) == HostOfRank{0, 1});  // two workers in each
    const std::vector<pp::run_tool::Host> huge(3000, {"x", 1'000'000});  // 3e9 slots, more than an int holds
    CHECK(place_ranks(plan, huge) == HostOfRank{0, 0, 0, 0});
  }

  TEST_CASE("ranks of one node stand on one host: that of its name, else the next with room") {
    const pp::plan::Plan plan = plan_on({"a", "a", "b", "b"});
    CHECK(place_ranks(plan, {{"x", 4}, {"y", 4}}) == HostOfRank{0, 0, 1, 1});
    CHECK(place_ranks(plan, {{"b", 2}, {"a", 2}}) == HostOfRank{1, 1, 0, 0});
    CHECK(place_ranks(plan, {{"x", 1}, {"y", 2}, {"z", 2}}) == HostOfRank{1, 1, 2, 2});
    // Two slots: a rank for both workers of a node. With three slots, rank 0 would have workers 0 and 1, ranks
    // 1 and 2 one each: node a in one process, b in two.
    CHECK(place_ranks(plan, {{"x", 1}, {"y", 1}}) == HostOfRank{0, 1});
    CHECK(place_ranks(plan, {{"x", 1}, {"y", 2}}) == HostOfRank{0, 1, 1});
  }

  TEST_CASE("ranks that the plan names are as many, whatever the hosts offer") {
    const pp::plan::Plan plan = with_ranks(plan_on({"a", "a", "b", "b"}), {0, 0, 1, 1});
    CHECK(place_ranks(plan, {{"x", 4}, {"y", 4}}) == HostOfRank{0, 1});
  }

  TEST_CASE("too few slots or hosts: what is needed, what is there, what helps") {
    const pp::plan::Plan named = with_ranks(plan_on({"", "", "", ""}), {0, 1, 2, 3});
    CHECK(refusal([&] {
            place_ranks(named, {{"x", 2}, {"y", 1}});
          }) ==
          "the plan names 4 ranks and the 2 hosts of the file have 3 slots (x 2, y 1); add hosts or slots, or "
          "plan "
          "for fewer");
    CHECK(refusal([] {
            place_ranks(plan_on({"a", "a", "b", "b"}), {{"x", 8}});
          }) ==
          "the plan has 2 nodes, of which b needs a host of its own with 2 slots; the 1 host of the file (x 8) "
          "leave "
          "none; add one, or plan for the machines that you have");
    CHECK(refusal([] {
            place_ranks(plan_on({"a", "b"}), {{"x", 1}});
          }) ==
          "on 1 rank rank 0 would have workers of the nodes a and b; give the hosts 2 slots together, one for "
          "each "
          "worker");
  }

  TEST_CASE("Open MPI's command: hosts with their ranks in the order of the plan, bound by pp-run itself") {
    CHECK(command(plan_on({"a", "a", "b", "b"}), {{"b", 4}, {"a", 4}}, Launcher::mpirun) ==
          Words{"mpirun", "-n", "4", "--host", "a,a,b,b", "--map-by", "seq", "--bind-to", "none", "pp-run",
                "train", "p.json", "--steps", "4"});
  }

  TEST_CASE("MPICH's command") {
    CHECK(command(plan_on({"", "", ""}), {{"x", 2}, {"y", 2}}, Launcher::mpich) ==
          Words{"mpiexec.hydra", "-n", "3", "-hosts", "x:2,y:1", "-bind-to", "none", "pp-run", "train",
                "p.json", "--steps", "4"});
  }

  TEST_CASE("Slurm's command: a place for each rank, the cores and GPUs of the rank that has most") {
    pp::plan::Plan plan = plan_on({"a", "a", "b"});
    // Two ranks: workers 0 and 1 with 2 + 1 cores (one is left open), worker 2 with one.
    plan.devices[0].cores = {0, 1};
    CHECK(command(plan, {{"x", 1}, {"y", 1}}, Launcher::srun) ==
          Words{"srun", "--mpi=pmix", "--ntasks=2", "--nodes=2", "--distribution=arbitrary", "--nodelist=x,y",
                "--cpus-per-task=3", "--cpu-bind=none", "pp-run", "train", "p.json", "--steps", "4"});
    for (pp::Device& device : plan.devices) {
      device.kind = pp::DeviceKind::cuda;
      device.cores.clear();
    }
    CHECK(command(plan, {{"x", 2}, {"y", 1}}, Launcher::srun) ==
          Words{"srun", "--mpi=pmix", "--ntasks=3", "--nodes=2", "--distribution=arbitrary", "--nodelist=x,x,y",
                "--cpus-per-task=1", "--cpu-bind=none", "--gpus-per-task=1", "--gpu-bind=none", "pp-run",
                "train", "p.json", "--steps", "4"});
  }

  TEST_CASE("a host whose ranks do not follow each other is not for MPICH") {
    const pp::plan::Plan plan = with_ranks(plan_on({"a", "b", "a"}), {0, 1, 2});
    const std::vector<Host> hosts{{"a", 2}, {"b", 1}};
    CHECK(refusal([&] { command(plan, hosts, Launcher::mpich); }) ==
          "the plan's ranks on a do not follow each other, which MPICH cannot start; number the ranks of the "
          "plan "
          "node by node, or use another launcher");
    CHECK(command(plan, hosts, Launcher::mpirun)[4] == "a,b,a");
    CHECK(command(plan, hosts, Launcher::srun)[5] == "--nodelist=a,b,a");
  }

  TEST_CASE("a command is printed as a shell reads it") {
    CHECK(shell_text({"a", "--b=c", "d e", "it's", ""}) == "a --b=c 'd e' 'it'\\''s' ''");
  }
}

}  // namespace launch_test
