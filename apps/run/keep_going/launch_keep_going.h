// pp-run launch --keep-going: a training on several hosts that goes on with what is left of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/run/hosts.h"
#include "apps/run/keep_going/next_plan.h"
#include "apps/run/launch_command.h"

namespace pp::run_tool {

struct KeptLaunch {
  std::vector<Host> hosts;
  Launcher launcher{};
  LaunchOptions options;          ///< of the first start
  Replanning planning;            ///< Replanning::first is the plan of `options`
  std::string checkpoint;         ///< folder of --checkpoint among the arguments
  int attempts = 3;               ///< starts in a row that write no checkpoint
  std::optional<Seconds> rejoin;  ///< how often hosts that were lost are asked; none: they stay away
  /// Within how long a new plan for measured speeds has to repay the restart; none: plans stay. With
  /// Replanning::profile.
  std::optional<Seconds> rebalance = std::nullopt;
};

/// The value of an option among arguments, `--name VALUE` or `--name=VALUE`; nothing where it is not there.
std::optional<std::string> value_of(const std::vector<std::string>& arguments, const std::string& option);

/// The arguments without the option, and with `--option value`.
std::vector<std::string> with_value(const std::vector<std::string>& arguments, const std::string& option,
                                    const std::string& value);

/// Starts the job until it ends by itself, is interrupted or cannot go on; says on stderr what happens. Returns
/// the exit code. Throws pp::Error (usage) where the launcher is not there or nothing can be written beside the
/// checkpoints.
int launch_and_keep_going(const KeptLaunch& launch);

}  // namespace pp::run_tool
