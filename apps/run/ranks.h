// The processes that train together, from their start to their common end, and the libraries that this build
// computes and talks with.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/shell.h"
#include "librun/run.h"
#include "librun/warm.h"

namespace pp::run_tool {

/// Of a process that was started alone: nothing happens.
class Ranks {
 public:
  /// Among mpirun's ranks, when it was started so; ends the process where they do not meet within `patience`.
  void join(Seconds patience);
  bool alone() const { return !peers_; }
  /// The first one writes files and says what there is to say.
  bool first() const { return alone() || peers_->rank() == 0; }

  /// What all ranks need before they train. What `read` throws is told to the others, and thrown.
  template <class Read>
  auto reading(Read&& read) {
    try {
      return read();
    } catch (const Error& error) {
      if (peers_) run::refuse_together(*peers_, error);
      throw;
    }
  }

  run::RunReport train(const plan::Plan& plan, const run::RunOptions& options, run::Observer& observer,
                       const std::function<bool()>& interrupted);
  run::WarmReport warm(const plan::Plan& plan, const run::RunOptions& options);

  /// At the end of main(): the ranks leave together, or all are ended where the run has failed. Returns the
  /// exit code.
  int leave(int exit_code);

 private:
  /// What all of them do: remembers how it ended.
  void together(const std::function<void(run::Peers&)>& work);

  std::unique_ptr<run::Peers> peers_;
  Bytes joining_;        ///< of memory, to meet the others
  bool torn_ = false;    ///< the others may still wait for this one, or it for them
  bool speaks_ = false;  ///< for rank 0, which is silent
  std::string reason_;   ///< why this rank has ended; rank 0 has been told
};

/// Names and versions; the version of what this build lacks is empty.
std::vector<std::pair<std::string, std::string>> backends();

}  // namespace pp::run_tool
