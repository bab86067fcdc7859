// pp-run devices: what a plan may name on this machine.
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/run/commands.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/text.h"
#include "libprofile/device/process.h"

namespace pp::run_tool {
namespace {

void devices(const cli::Shell& shell) {
  const profile::MachineDevices machine = profile::machine_devices();
  const int cuda = machine.cuda();
  if (shell.json) {
    std::cout << dump_json_compact(Json{{"cores", machine.cores}, {"cuda", cuda}}) << '\n';
    return;
  }
  std::cout << counted(std::ssize(machine.cores), "core") << ", " << counted(cuda, "CUDA device");
  if (cuda == 0) std::cout << " (" << machine.why_no_cuda << ")";
  std::cout << '\n';
}

}  // namespace

void add_devices(const cli::Command& app, cli::Shell& shell) {
  const cli::Command command = app.add_subcommand("devices", "the cores and GPUs that a plan may name here");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-run devices", "pp-run devices --json",
                                                             "pp-run devices --json -q"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([&shell] { devices(shell); });
}

}  // namespace pp::run_tool
