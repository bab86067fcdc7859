// The command that starts a plan's ranks on several machines. Pure.
#pragma once

#include <string>
#include <vector>

#include "apps/run/hosts.h"
#include "libplan/plan/plan.h"
#include "libprofile/core/enum_names.h"

namespace pp::run_tool {

enum class Launcher {
  mpirun,  ///< Open MPI's
  mpich,   ///< MPICH's mpiexec.hydra, also of Intel MPI
  srun     ///< Slurm's, inside of an allocation
};

struct LaunchOptions {
  std::string program = "pp-run";
  std::string plan;                      ///< its file
  std::vector<std::string> arguments{};  ///< of pp-run
  std::string slurm_interface = "pmix";  ///< how srun speaks to the MPI library: `pmix`, `pmi2`
  bool warm = false;  ///< what workers exchange is tried (check --warm), in place of a training
};

/// Where each rank runs: a host for each, by position.
using HostOfRank = std::vector<int>;

/// As many ranks as the plan names, else as many as there are slots and workers, fewer where a rank would have
/// workers of two nodes. The ranks of a node of the plan stand on one host: the one of its name, else the next
/// that has room. Where the plan names no nodes, ranks fill the hosts one after the other. Throws pp::Error
/// (usage) that names what is needed and what is there.
HostOfRank place_ranks(const plan::Plan& plan, const std::vector<Host>& hosts);

/// pp-run with the plan and its own arguments: what each rank is.
std::vector<std::string> rank_command(const LaunchOptions& options);

/// The launcher with its options, then pp-run with the plan and its own. Throws as place_ranks(), and where the
/// launcher cannot place ranks of which a host has several that do not follow each other.
std::vector<std::string> launch_command(const plan::Plan& plan, const std::vector<Host>& hosts,
                                        Launcher launcher, const LaunchOptions& options);

/// The launcher's way to run a command once, on this host.
std::vector<std::string> host_command(Launcher launcher, const std::string& host,
                                      const std::vector<std::string>& command);

/// The words as a shell reads them.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace pp::run_tool

namespace pp {
template <>
struct EnumNames<run_tool::Launcher> {
  static constexpr std::array table{std::pair{run_tool::Launcher::mpirun, "mpirun"sv},
                                    std::pair{run_tool::Launcher::mpich, "mpich"sv},
                                    std::pair{run_tool::Launcher::srun, "srun"sv}};
};
}  // namespace pp
