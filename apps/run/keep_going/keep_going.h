// --keep-going: a training that is started again until it ends by itself, in one process or by a launcher on
// several hosts, where it goes on with what is left of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/run/hosts.h"
#include "apps/run/keep_going/next_plan.h"
#include "apps/run/launch_command.h"
#include "apps/run/run_options.h"

namespace pp::run_tool {

struct KeptTraining {
  std::vector<Host> hosts = {{}};                   ///< without a launcher this one, which needs no name
  std::optional<Launcher> launcher = std::nullopt;  ///< none: one process, a child of this one
  LaunchOptions options;                            ///< of the first start
  Replanning planning;                              ///< Replanning::first is the plan of `options`
  std::string checkpoint;                           ///< folder of --checkpoint among the arguments
  RestartOptions restart;                           ///< its profile is that of `planning`
  std::optional<Seconds> rejoin = std::nullopt;     ///< how often lost hosts are asked; none: they stay away
};

/// The value of an option among arguments, `--name VALUE` or `--name=VALUE`; nothing where it is not there.
std::optional<std::string> value_of(const std::vector<std::string>& arguments, const std::string& option);

/// The arguments without the option, behind `--option value`.
std::vector<std::string> with_value(const std::vector<std::string>& arguments, const std::string& option,
                                    const std::string& value);

/// Starts the training until it ends by itself, is interrupted or cannot go on; says on stderr what happens.
/// Returns the exit code. Throws pp::Error (usage) where the launcher is not there or nothing can be written
/// beside the checkpoints.
int keep_going(const KeptTraining& training);

}  // namespace pp::run_tool
