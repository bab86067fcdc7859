// scripts/bench simulate: operations per second of the validator and the simulator, from 10^4 to 10^6
// operations of one core's CPU time, and how the time grows.
#include <ctime>
#include <iomanip>
#include <iostream>
#include <string_view>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "libplan/schedule/validate.h"
#include "libplan/simulate/simulate.h"

namespace {

using namespace pp::plan;

constexpr int kWorkers = 16;

/// The least CPU seconds of three calls.
template <class Call>
double seconds(Call call) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t begin = std::clock();
    call();
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

SimulationInput input_of(const std::string& name, int micro_batches) {
  SimulationInput input;
  input.programs = program_set({name, std::vector<int>(kWorkers, 1), micro_batches, WindowRule::win, {}});
  StageCosts costs;
  costs.forward = costs.input_gradient = costs.weight_gradient = pp::Seconds(1e-3);
  costs.backward = pp::Seconds(2e-3);
  costs.saved = pp::Bytes(1 << 20);
  input.stages.assign(input.programs.stage_workers.size(), costs);
  for (int s = 0; s + 1 < static_cast<int>(input.stages.size()); ++s)
    input.edges.push_back({pp::StageId{s}, pp::StageId{s + 1}, pp::Bytes(1 << 16), pp::Bytes(1 << 16)});
  input.links = {{{pp::BytesPerSecond(1e9), pp::Seconds(1e-5)}}};
  return input;
}

void report(const std::string& name) {
  double first = 0;
  for (const int operations : {10'000, 100'000, 1'000'000}) {
    const int per_micro_batch = name == "zb-h1" ? 3 : name == "zb-v" ? 6 : 2;
    const SimulationInput input = input_of(name, operations / (per_micro_batch * kWorkers));
    std::size_t count = 0;
    for (const Program& program : input.programs.workers) count += program.size();
    const double validated = seconds([&] { validate(input.programs); });
    const double simulated = seconds([&] { (void)simulate(input); });
    const double per_operation = simulated / static_cast<double>(count);
    if (first == 0) first = per_operation;
    std::cout << std::left << std::setw(8) << name << std::right << std::setw(11) << count << std::fixed
              << std::setprecision(2) << std::setw(16) << 1e-6 * static_cast<double>(count) / validated
              << std::setw(16) << 1e-6 * static_cast<double>(count) / simulated << std::setw(16)
              << per_operation / first << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    std::cout << "scripts/bench simulate: validator and simulator on " << kWorkers
              << " workers with messages and memory, one core's CPU time, best of 3.\n"
                 "growth: time per operation relative to 10^4 operations; 1 is linear.\n";
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::cout << "schedule operations  validated Mop/s  simulated Mop/s  growth per op\n";
  for (const char* name : {"1f1b", "zb-h1", "zb-v"}) report(name);
}
