// pp-run launch: starts the ranks of a plan by the launcher that is there.
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/run/commands.h"
#include "apps/run/keep_going/child_process.h"
#include "apps/run/keep_going/keep_going.h"
#include "apps/run/launch_command.h"
#include "apps/run/run_options.h"
#include "librun/transport/backends.h"

namespace pp::run_tool {
namespace {

struct LaunchedOptions : RestartOptions {
  std::string plan, hosts;
  std::optional<Launcher> launcher;
  bool print = false;
  bool warm = false;
  std::optional<int> spare;
  std::optional<Seconds> rejoin;
  std::vector<std::string> arguments;
};

constexpr auto kLaunch = options(
    option<&LaunchedOptions::plan>("plan", "a plan.json that all machines can read",
                                   {.value = "PLAN", .required = true}),
    option<&LaunchedOptions::hosts>("--hosts", "the machines: lines `node1 slots=4`, as for mpirun",
                                    {.value = "FILE", .required = true}),
    option<&LaunchedOptions::launcher>("--launcher",
                                       "default: srun in a Slurm job, else that of the MPI library"),
    option<&LaunchedOptions::warm>(
        "--warm", "before a long job: pp-run check --warm on these machines, in place of the training"),
    option<&LaunchedOptions::print>("--print", "print the command and do not run it (--json: as an array)"),
    option<&LaunchedOptions::arguments>("arguments", "behind --: what pp-run takes beside the plan",
                                        {.value = "ARGUMENTS"}));

constexpr auto kHosts = options(
    option<&LaunchedOptions::spare>(
        "--spare", "hosts that new plans leave idle, to stand in for the next one that is lost",
        {.group = "Keep going", .value = "N", .least = 0, .most = 1'000'000}),
    option<&LaunchedOptions::rejoin>("--rejoin",
                                     "ask lost hosts so often (1min) whether they are back, and go on with "
                                     "them after a checkpoint where that is faster"));

/// srun in a job of Slurm, else that of the MPI library.
Launcher default_launcher(const std::string& library) {
  if (std::getenv("SLURM_JOB_ID") != nullptr) return Launcher::srun;
  if (library.empty())
    throw Error(ErrorKind::usage,
                "this build has no MPI, so its processes cannot train together; install it "
                "(Debian: libopenmpi-dev openmpi-bin), configure again with -DPP_MPI=ON and build");
  return library.starts_with("Open MPI") ? Launcher::mpirun : Launcher::mpich;
}

/// What to launch, and how.
struct Job {
  plan::Plan plan;
  std::vector<Host> hosts;
  Launcher launcher{};
  LaunchOptions launch;
};

Job load_job(const LaunchedOptions& options) {
  if (options.plan == "-" || options.hosts == "-")
    throw Error(ErrorKind::usage,
                "launch takes files, and not standard input: every rank reads the plan by itself");
  Job job{.plan = cli::load(options.plan, plan::parse_plan),
          .hosts = cli::load(options.hosts, parse_hosts),
          .launch = {own_path(), options.plan, options.arguments}};
  const std::string library = run::mpi_library();
  job.launch.warm = options.warm;
  job.launcher = options.launcher ? *options.launcher : default_launcher(library);
  if (!library.empty() && !library.starts_with("Open MPI")) job.launch.slurm_interface = "pmi2";
  return job;
}

void check_keep_going(const LaunchedOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::usage, what); };
  check_restart(options);
  if (const OptionRow* given = first_given(kHosts, options); given && !options.keep_going)
    refuse(name_of(*given) + " belongs to --keep-going; add that");
  if (options.keep_going && options.warm)
    refuse("--warm tries what workers exchange, without a training that --keep-going could start again");
  if (options.keep_going && !value_of(options.arguments, "--checkpoint"))
    refuse(
        "--keep-going: a training goes on from checkpoints; give their folder with --checkpoint DIR behind "
        "--, and how often with --every");
}

KeptTraining kept(const LaunchedOptions& options, const Job& job) {
  if (options.profile.empty() && job.hosts.size() > 1)
    cli::warn(
        "nothing can be planned anew for fewer hosts without the profile that the plan was made from; "
        "give it with --profile FILE");
  return {.hosts = job.hosts,
          .launcher = job.launcher,
          .options = job.launch,
          .planning = {.first = placed(job.plan, options.plan, job.hosts),
                       .profile = load_profile(options, job.plan),
                       .spare = options.spare.value_or(0)},
          .checkpoint = *value_of(options.arguments, "--checkpoint"),
          .restart = options,
          .rejoin = options.rejoin};
}

[[noreturn]] void replace_process(std::vector<std::string> command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  std::cout.flush();
  for (const int ignored : {SIGPIPE, SIGXFSZ, SIGCHLD})
    std::signal(ignored, SIG_DFL);  // a new program would inherit it
  execvp(words.front(), words.data());
  throw Error(ErrorKind::usage, command.front() + ": " + std::strerror(errno) +
                                    "; install it, or choose another by --launcher: " + list_names<Launcher>());
}

void warn_of_root(Launcher launcher) {
  if (launcher != Launcher::mpirun || geteuid() != 0) return;
  for (const char* const allows : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
    if (std::getenv(allows) != nullptr) continue;
    return cli::warn(
        "Open MPI's mpirun does not start programs for root; in a container set OMPI_ALLOW_RUN_AS_ROOT=1 and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, else be another user");
  }
}

/// ssh's word on such a host drowns in a page about the launcher's daemons. Its own configuration may name it,
/// so this is a warning.
void warn_of_unknown(const std::vector<Host>& hosts, Launcher launcher, const std::string& file) {
  std::string unknown;
  for (const Host& host : hosts) {
    addrinfo* found = nullptr;
    if (launcher == Launcher::srun || getaddrinfo(host.name.c_str(), nullptr, nullptr, &found) == 0) {
      if (found != nullptr) freeaddrinfo(found);
    } else {
      unknown += (unknown.empty() ? "" : ", ") + host.name;
    }
  }
  if (!unknown.empty())
    cli::warn(file + ": no address is known for " + unknown +
              "; correct the file, unless ~/.ssh/config has such a host");
}

void launch(const LaunchedOptions& options, cli::Shell& shell) {
  check_keep_going(options);
  const Job job = load_job(options);
  if (!shell.json && !options.print) {
    warn_of_root(job.launcher);
    warn_of_unknown(job.hosts, job.launcher, options.hosts);
  }
  const std::vector<std::string> command = with_context(
      options.hosts, [&] { return launch_command(job.plan, job.hosts, job.launcher, job.launch); });
  if (shell.json) {
    std::cout << Json(command).dump() << '\n';
  } else if (options.print) {
    std::cout << shell_text(command) << '\n';
  } else if (options.keep_going) {
    shell.exit_code = static_cast<cli::ExitCode>(keep_going(kept(options, job)));
  } else {
    replace_process(command);
  }
}

}  // namespace

void add_launch(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "launch", "train on several machines: run the mpirun or srun that fits the plan", kLaunch,
      launch,
      {"pp-run launch plan.json --hosts hosts.txt -- --data configs/data/digits --epochs 20 -o report.json",
       "pp-run launch plan.json --hosts hosts.txt --print -- --data synthetic --steps 50",
       "pp-run launch plan.json --hosts hosts.txt --keep-going --profile profile.json -- --data "
       "configs/data/digits "
       "--epochs 20 --checkpoint ck --every 10min"},
      [](const cli::Command& command, LaunchedOptions& options) {
        add_restart_options(
            command, options,
            "start again from the last checkpoint when ranks, hosts or devices are lost, with a new "
            "plan for what is left where the plan does not fit any more");
        cli::add_options(command, kHosts, options);
      });
}

}  // namespace pp::run_tool
