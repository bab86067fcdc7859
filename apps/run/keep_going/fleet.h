// The hosts of a job that keeps going: whether they still answer (the launcher starts a command on each),
// and what of a plan's machine that leaves.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/run/hosts.h"
#include "apps/run/keep_going/child_process.h"
#include "apps/run/launch_command.h"
#include "libplan/plan/plan.h"

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
  /// The answer, once it is decided; nothing: the host does not answer.
  const std::optional<HostAnswer>& answer() const { return answer_; }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::chrono::steady_clock::time_point last_;
  std::optional<HostAnswer> answer_;
};

/// All of them at once, each in its place.
std::vector<std::optional<HostAnswer>> ask_hosts(const std::vector<Host>& hosts, Launcher launcher,
                                                 const std::string& program, Seconds limit);

/// A host that is lost so often is left out for good: it would come back only to go again.
inline constexpr int kMostLosses = 3;
inline constexpr std::string_view kMostLossesText = "third";

struct FleetHost {
  Host host;
  bool there = true;
  int losses = 0;
  int cuda = 0;  ///< GPUs that it had at the start; 0: it was not asked
  int gone = 0;  ///< of these, now
  bool left_out() const { return losses >= kMostLosses; }
};

class Fleet {
 public:
  explicit Fleet(const std::vector<Host>& hosts);

  /// Those that are there, in the order of the file.
  std::vector<Host> there() const;
  /// Those that may come back.
  std::vector<Host> away() const;

  /// How many GPUs each has, from the first answers, of hosts in the order of the file.
  void note_devices(const std::vector<std::optional<HostAnswer>>& answers);
  /// What those there() have answered. Returns a line for each host that was there and is lost, with a device
  /// or whole: `host b does not answer`. Of several hosts one without all of its GPUs is lost as a whole, of a
  /// single one they are. A host lost for the third time is left out, which its line says.
  std::vector<std::string> note(const std::vector<std::optional<HostAnswer>>& answers);
  /// Whether this answer of one that is away brings it back, with all that it had.
  bool take_back(const std::string& name, const std::optional<HostAnswer>& answer);

  /// GPUs that the only host of the file has lost.
  int gone() const { return hosts_.size() == 1 ? hosts_.front().gone : 0; }

 private:
  std::vector<FleetHost> hosts_;
};

/// Positions in plan.devices of those that `hosts` still have, `spare` hosts of them left idle while one
/// remains. A node of the plan is kept where the host of its name is there, else, in order, where another host
/// has no node yet. Of a plan without nodes as many devices as slots. `gone` GPUs less, those with the highest
/// numbers.
std::vector<int> devices_left(const plan::Plan& plan, const std::vector<Host>& hosts, int spare, int gone);

}  // namespace pp::run_tool
