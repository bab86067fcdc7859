// Another program that is started, watched and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/keep_going/keep_going.h"

namespace pp::run_tool {

/// Where the program's standard output goes.
enum class Stdout { inherited, kept };

/// A process in a group of its own, so that a terminal's Ctrl-C does not reach it; it gets SIGUSR1
/// when this process dies. Standard input is empty. The destructor kills the group.
class ChildProcess {
 public:
  /// Throws pp::Error (usage) that names the program where it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command, Stdout output = Stdout::inherited);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// How it has ended; nothing as long as it runs. Exit codes of launchers above 128 are signals where they are
  /// some. What it has written is taken.
  std::optional<ChildEnd> look();
  /// To the process alone: launchers pass signals on to the ranks.
  void signal(int number) const;
  /// To the process; all of its group are killed where it has not ended `grace` later.
  ChildEnd end(Seconds grace);
  /// What it wrote on a kept standard output so far.
  const std::string& output() const { return output_; }

 private:
  void take_output();

  pid_t pid_ = -1;
  int out_ = -1;
  std::string output_;
  std::optional<ChildEnd> ended_;
};

}  // namespace pp::run_tool
