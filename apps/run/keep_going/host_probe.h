// Whether hosts still answer: the launcher is asked to start a command on each.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/run/keep_going/child_process.h"
#include "apps/run/launch_command.h"

namespace pp::run_tool {

/// What a host has, by its own word (`pp-run devices --json`).
struct HostAnswer {
  int cores = 0;
  int cuda = 0;
  bool operator==(const HostAnswer&) const = default;
};

/// The last line that is such an answer, among what a launcher may print; nothing: there is none.
std::optional<HostAnswer> parse_answer(std::string_view text);

/// One host that is asked. It has `limit` to answer.
class HostProbe {
 public:
  HostProbe(Launcher launcher, const std::string& host, const std::string& program, Seconds limit);
  /// Whether it is decided: an answer, none, or the limit has passed.
  bool look();
  /// Of one that is decided; nothing: it does not answer.
  const std::optional<HostAnswer>& answer() const { return answer_; }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::chrono::steady_clock::time_point last_;
  std::optional<HostAnswer> answer_;
};

/// All of them at once, each in its place.
std::vector<std::optional<HostAnswer>> ask_hosts(const std::vector<Host>& hosts, Launcher launcher,
                                                 const std::string& program, Seconds limit);

}  // namespace pp::run_tool
