// scripts/bench plan: how fast the planner searches, in CPU seconds. --help says what is measured.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "libplan/cost/chain_cost.h"
#include "libplan/peers/peer.h"
#include "libplan/search/exact/label_search.h"
#include "tests/lab/bench/measure.h"
#include "tests/lab/bench/plan_instances.h"
#include "tests/lab/bench/quadratic_program.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/test_data.h"

namespace pp::bench {
namespace {

using namespace pp::plan;

constexpr const char* kHelp =
    "scripts/bench plan [flat] [growth] [levels] [piper] [process]: CPU seconds of the planner's searches; all "
    "parts\n"
    "without an argument. Ends with 1 when two programs that must agree do not.\n"
    "flat     the exact bottleneck search and PipeDream's O(N^2 D^2) recurrence in the same process, in five\n"
    "         alternating rounds: median and spread, equal objectives. The recurrence on N = 10,000 layers "
    "and\n"
    "         D = 256 devices is extrapolated from its steps and the steps per second of N = 1000, D = 64.\n"
    "growth   bottleneck search and synchronous search (M = 4 D micro-batches) for N = 100..10,000, D = "
    "8..256\n"
    "levels   PipeDream's hierarchical recurrence on 8 x 8 x 4 devices, N = 1000\n"
    "piper    Piper's model on its resnet and bert32a100; objective 0: does not fit\n"
    "process  the whole pp-plan on PipeDream's resnet50 profile, 64 devices\n"
    "Instances: chains with layers of 1 to 21 ms, half of them with up to 100 MB of weights, cuts of 1 to 41 "
    "MB,\n"
    "1 GB/s. A bar that the project set itself stands behind its figure.\n";

const Link kLink{BytesPerSecond(kBandwidth), Seconds(0)};

std::string verdict(bool met, const std::string& bar) { return (met ? "met: " : "MISSED: ") + bar; }

/// One chain and its loads on up to `devices`.
struct Problem {
  Problem(int layers, int devices, LoadOptions options)
      : chain(chain_of(random_chain(layers))),
        load(chain, options, equal_seats(devices, {kLink, kLink}, {}), {}) {
    space.layers = layers;
    space.devices = devices;
  }
  Chain chain;
  ChainCost load;
  SearchSpace space;
};

bool compare(int layers, int devices, double& steps_per_second, double& least_ratio) {
  constexpr int kRounds = 5;
  const Problem problem(layers, devices, {LoadKind::period, 1});
  Sample search, program;
  double found = 0;
  double expected = 0;
  for (int round = 0; round < kRounds; ++round) {
    search.values.push_back(
        cpu_seconds_of([&] { found = search_bottleneck(problem.space, problem.load).value; }));
    program.values.push_back(
        cpu_seconds_of([&] { expected = quadratic_program(problem.load, layers, devices); }));
  }
  steps_per_second = quadratic_steps(layers, devices) / program.median();
  least_ratio = program.median() / search.median();
  std::printf("%6d %5d  %8.4f (%.4f..%.4f)  %8.3f (%.3f..%.3f)  %7.1f  %s\n", layers, devices, search.median(),
              search.least(), search.most(), program.median(), program.least(), program.most(), least_ratio,
              found == expected ? "equal" : "NOT EQUAL");
  return found == expected;
}

bool flat() {
  std::puts("flat: exact bottleneck search against the O(N^2 D^2) recurrence, CPU s");
  std::puts("     N     D  search: median (spread)     recurrence: median (spread)   ratio  objectives");
  double rate = 0;
  double ratio = 0;
  bool equal = true;
  for (const auto& [layers, devices] : {std::pair{300, 32}, {1000, 16}, {1000, 64}})
    equal = compare(layers, devices, rate, ratio) && equal;
  std::printf("N = 1000, D = 64: ratio %.1f, %s\n", ratio, verdict(ratio >= 20, "at least 20").c_str());

  const Problem large(10'000, 256, {LoadKind::period, 1});
  const double search = cpu_seconds_of([&] { (void)search_bottleneck(large.space, large.load); });
  const double program = quadratic_steps(10'000, 256) / rate;
  std::printf("%6d %5d  %8.4f, recurrence EXTRAPOLATED %.0f at %.2g steps/s, ratio %.0f\n\n", 10'000, 256,
              search, program, rate, program / search);
  return equal;
}

/// Synchronous searches above this many layers * devices^2 take minutes.
constexpr double kSynchronousLimit = 5e7;

std::string synchronous_columns(int layers, int devices) {
  if (static_cast<double>(layers) * devices * devices > kSynchronousLimit) return "          -       -";
  const Problem step(layers, devices, {LoadKind::step, 4 * devices});
  std::size_t points = 0;
  const double seconds = cpu_seconds_of([&] { points = search_points(step.space, step.load).points.size(); });
  char text[64];
  std::snprintf(text, sizeof text, "%11.3f  %6zu", seconds, points);
  return text;
}

double grow(int layers, int devices) {
  const Problem period(layers, devices, {LoadKind::period, 1});
  int probes = 0;
  const double search = cpu_seconds_of([&] { probes = search_bottleneck(period.space, period.load).tests; });
  std::printf("%6d %5d  %10.4f  %6d  %s  %9.0f\n", layers, devices, search, probes,
              synchronous_columns(layers, devices).c_str(), peak_mebibytes());
  return search;
}

bool growth() {
  std::puts("growth: CPU s, probes and Pareto points, peak memory of the process so far; -: not run (minutes)");
  std::puts("     N     D  bottleneck  probes  synchronous  points  peak, MiB");
  double largest = 0;
  for (const int layers : {100, 1000, 10'000}) {
    for (const int devices : {8, 64, 256}) largest = grow(layers, devices);
  }
  std::printf("N = 10,000, D = 256: bottleneck search %s, %s\n\n", verdict(largest < 10, "below 10 s").c_str(),
              verdict(peak_mebibytes() < 1024, "below 1 GiB").c_str());
  return true;
}

bool levels() {
  const Profile profile = random_chain(1000);
  std::puts(
      "levels: 8 devices at 10 GB/s in each of 8 nodes at 2 GB/s in each of 4 groups at 1 GB/s, N = 1000");
  std::puts("cost model       machines  CPU s  objective, s");
  for (const PeerModel model : {PeerModel::pipedream_code, PeerModel::pipedream_paper}) {
    for (const MachinesRule rule : {MachinesRule::exactly, MachinesRule::at_most}) {
      PeerOptions options;
      options.model = model;
      options.machines = rule;
      options.levels = {{8, BytesPerSecond(10e9)}, {8, BytesPerSecond(2e9)}, {4, BytesPerSecond(1e9)}};
      double objective = 0;
      const double seconds = cpu_seconds_of(
          [&] { objective = std::get<PeerPlan>(plan_as_peer(profile, options)).objective.count(); });
      std::printf("%-15s  %8s  %5.2f  %.9f  %s\n", std::string(name_of(model)).c_str(),
                  std::string(name_of(rule)).c_str(), seconds, objective,
                  verdict(seconds < 5, "below 5 s").c_str());
    }
  }
  std::puts("");
  return true;
}

/// Rows that Piper's own program answers in 3 to 8 CPU seconds (resnet) each.
bool piper() {
  struct Row {
    const char* profile;
    int devices;
    double gibibytes;
    int batch;
  };
  std::puts("piper: Piper's model at 25 GiB/s, its own search; CPU s");
  std::puts("profile           devices    GiB  CPU s  objective, s");
  for (const Row& row :
       {Row{"piper_resnet", 8, 4, 7680}, Row{"piper_resnet", 16, 1.5, 7680}, Row{"piper_resnet", 16, 2, 7680},
        Row{"piper_resnet", 32, 1.5, 7680}, Row{"piper_resnet", 64, 1, 7680}, Row{"piper_resnet", 64, 4, 7680},
        Row{"piper_bert32a100", 64, 2, 1920}}) {
    const Profile profile = pp::test::peer_profile(row.profile);
    PeerOptions options;
    options.model = PeerModel::piper;
    options.levels = {{row.devices, BytesPerSecond(25.0 * (1LL << 30))}};
    options.memory_limit = Bytes(static_cast<std::int64_t>(row.gibibytes * (1LL << 30)));
    options.micro_batches_in_batch = row.batch;
    double objective = 0;
    const double seconds = cpu_seconds_of([&] {
      const auto result = plan_as_peer(profile, options);
      if (const auto* plan = std::get_if<PeerPlan>(&result)) objective = plan->objective.count();
    });
    std::printf("%-16s  %7d  %5.1f  %5.2f  %12.9f  %s\n", row.profile, row.devices, row.gibibytes, seconds,
                objective, verdict(seconds < 3, "below 3 s").c_str());
  }
  std::puts("");
  return true;
}

/// Without the program there is nothing to measure, which is said.
bool process(const std::filesystem::path& tools) {
  const std::filesystem::path planner = std::filesystem::absolute(tools / "pp-plan");
  if (!std::filesystem::exists(planner)) {
    std::printf("process: not measured, %s is not there\n", planner.c_str());
    return true;
  }
  const pp::test::TemporaryFolder folder;
  std::filesystem::copy_file(pp::test::test_data("peers/resnet50.json"), folder.path() / "profile.json");
  std::puts("process: the whole pp-plan on resnet50 with 64 devices at 1 GB/s, CPU s of three runs");
  bool worked = true;
  const auto measure = [&](const std::string& what, const std::vector<std::string>& options, double bar) {
    std::vector<std::string> arguments{"profile.json", "--devices", "64", "--bandwidth", "1e9", "-q"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Sample sample;
    for (int run = 0; run < 3; ++run) {
      const auto call = [&] {
        worked = pp::test::run_program(planner, arguments, folder.path()).code == 0 && worked;
      };
      sample.values.push_back(cpu_seconds_of(call, RUSAGE_CHILDREN));
    }
    char limit[32];
    std::snprintf(limit, sizeof limit, "below %g s", bar);
    std::printf("%-28s  %.3f (%.3f..%.3f)  %s\n", what.c_str(), sample.median(), sample.least(), sample.most(),
                verdict(sample.median() < bar, limit).c_str());
  };
  measure("--cost-model pipedream-code", {"--cost-model", "pipedream-code"}, 0.2);
  measure("our model, all on auto", {"--mini-batch", "64", "--linear-batch", "-o", "plan.json"}, 5);
  if (!worked) std::puts("process: pp-plan FAILED");
  return worked;
}

int run(const std::vector<std::string>& chosen, const std::filesystem::path& tools) {
  const std::vector<std::pair<std::string, std::function<bool()>>> parts{
      {"flat", flat}, {"growth", growth}, {"levels", levels}, {"piper", piper}, {"process", [&] {
                                                                                   return process(tools);
                                                                                 }}};
  bool good = true;
  for (const auto& [name, part] : parts) {
    if (!chosen.empty() && std::ranges::find(chosen, name) == chosen.end()) continue;
    good = part() && good;
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace pp::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    const bool help = argument == "--help";
    const std::vector<std::string_view> parts{"flat", "growth", "levels", "piper", "process"};
    if (!help && std::ranges::find(parts, argument) != parts.end()) continue;
    (help ? std::cout : std::cerr) << pp::bench::kHelp;
    return help ? 0 : 2;
  }
  const char* bin = std::getenv("PP_BIN");
  const std::filesystem::path beside = std::filesystem::path(argv[0]).parent_path();
  return pp::bench::run(arguments, bin == nullptr ? beside : std::filesystem::path(bin));
}
