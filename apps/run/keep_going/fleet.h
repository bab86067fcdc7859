// The hosts of a job that keeps going: which of them are there, and what of a plan's machine that leaves. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/run/hosts.h"
#include "apps/run/keep_going/host_probe.h"
#include "libplan/plan.h"

namespace pp::run_tool {

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
