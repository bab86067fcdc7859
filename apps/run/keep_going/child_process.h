// Another program that is started, watched and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::run_tool {

/// The path of the program that this process runs; `pp-run` where the system does not say.
std::string own_path();

/// Before children are started: whoever started this process may ignore SIGCHLD, which is inherited, and of a
/// child of such a process the system does not say how it ended.
void expect_children();

/// How a child has ended.
struct ChildEnd {
  int code = 0;    ///< exit code
  int signal = 0;  ///< that killed it; 0: none
};
/// `signal 9 (Killed)`, `exit code 1`
std::string to_text(const ChildEnd& end);
/// As the exit code of a process that stands for it.
int code_of(const ChildEnd& end);

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
  /// some. What it has written is taken. Throws pp::Error (run) where the end cannot be known.
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
