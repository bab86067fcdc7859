// What a plan's workers exchange beside what the plan promises, and what their communicators take of devices:
// found by a check before a training (warm.h). Free of Torch.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp::run {

/// A message from one worker to another, or a sum of several.
struct WarmExchange {
  std::vector<WorkerId> workers;  ///< of a message the sender, then the receiver
  std::string what;               ///< `activation of conv2`
  Bytes bytes;                    ///< of a sum those of one member's vector
  Seconds promised{};             ///< by the plan's links; 0: nothing, as within one device
  Seconds measured{};             ///< median, by rank 0's clock
};

/// A device of the plan that workers use.
struct WarmDevice {
  std::string name;
  std::vector<WorkerId> workers = {};
  Bytes peak{0};    ///< that the plan promises of these workers
  Bytes taken{0};   ///< by communicators; of processes on CPUs an equal share for each worker
  Bytes memory{0};  ///< 0: not known, no limit
  Bytes needed() const { return peak + taken; }
  bool fits() const { return memory == Bytes(0) || needed() <= memory; }
};

struct WarmReport {
  int ranks = 1;
  std::vector<WarmExchange> messages = {}, sums = {};
  std::vector<WarmDevice> devices = {};    ///< in the order of their first workers
  std::vector<std::string> left_out = {};  ///< what the plan's program does besides and was not tried
  std::vector<std::string> warnings = {};
};

}  // namespace pp::run
