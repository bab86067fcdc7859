// pp-run launch: starts the ranks of a plan by the launcher that is there.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/run/commands.h"
#include "apps/run/launch_command.h"
#include "librun/transport/backends.h"

namespace pp::run_tool {
namespace {

struct Options {
  std::string plan, hosts;
  std::optional<Launcher> launcher;
  bool print = false;
  std::vector<std::string> arguments;
};

/// srun in a job of Slurm, else that of the MPI library.
Launcher default_launcher(const std::string& library) {
  if (std::getenv("SLURM_JOB_ID") != nullptr) return Launcher::srun;
  if (library.empty())
    throw Error(ErrorKind::usage,
                "this build has no MPI, so its processes cannot train together; install it "
                "(Debian: libopenmpi-dev openmpi-bin), configure again with -DPP_MPI=ON and build");
  return library.starts_with("Open MPI") ? Launcher::mpirun : Launcher::mpich;
}

std::string own_path() {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return path.empty() ? "pp-run" : path.string();
}

std::vector<std::string> command_of(const Options& options) {
  if (options.plan == "-" || options.hosts == "-")
    throw Error(ErrorKind::usage,
                "launch takes files, and not standard input: every rank reads the plan by itself");
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  const std::vector<Host> hosts = cli::load(options.hosts, parse_hosts);
  const std::string library = run::mpi_library();
  const Launcher launcher = options.launcher ? *options.launcher : default_launcher(library);
  LaunchOptions launch{own_path(), options.plan, options.arguments};
  if (!library.empty() && !library.starts_with("Open MPI")) launch.slurm_interface = "pmi2";
  return with_context(options.hosts, [&] { return launch_command(plan, hosts, launcher, launch); });
}

[[noreturn]] void replace_process(std::vector<std::string> command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  std::cout.flush();
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);  // a new program would inherit it
  execvp(words.front(), words.data());
  throw Error(ErrorKind::usage, command.front() + ": " + std::strerror(errno) +
                                    "; install it, or choose another by --launcher: " + list_names<Launcher>());
}

void launch(const Options& options, const cli::Shell& shell) {
  const std::vector<std::string> command = command_of(options);
  if (shell.json) {
    std::cout << Json(command).dump() << '\n';
  } else if (options.print) {
    std::cout << shell_text(command) << '\n';
  } else {
    replace_process(command);
  }
}

}  // namespace

void add_launch(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command =
      app.add_subcommand("launch", "train on several machines: run the mpirun or srun that fits the plan");
  command.add_option("plan", options->plan, "a plan.json that all machines can read")
      .required()
      .type_name("PLAN");
  command.add_option("--hosts", options->hosts, "the machines: lines `node1 slots=4`, as for mpirun")
      .required()
      .type_name("FILE");
  command
      .add_option_function(
          "--launcher",
          [options](const std::string& text) {
            options->launcher = parse_enum<Launcher>(text, "--launcher", ErrorKind::usage);
          },
          "default: srun in a Slurm job, else that of the MPI library: " + list_names<Launcher>())
      .type_name("NAME");
  command.add_flag("--print", options->print, "print the command and do not run it (--json: as an array)");
  command.add_option("arguments", options->arguments, "behind --: what pp-run takes beside the plan")
      .type_name("ARGUMENTS");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run launch plan.json --hosts hosts.txt -- --data configs/data/digits --epochs 20 -o report.json",
      "pp-run launch plan.json --hosts hosts.txt --print -- --data synthetic --steps 50",
      "pp-run launch plan.json --hosts hosts.txt --launcher srun --print -- --data synthetic --steps 50"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { launch(*options, shell); });
}

}  // namespace pp::run_tool
