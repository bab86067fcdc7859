// How the driver of an inference learns of passes that are complete. Free of Torch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "librun/options/position.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

struct PassTime {
  Step pass = 0;
  Coordinator::Clock::time_point begin;  ///< of its first forward
  Coordinator::Clock::time_point end;    ///< of its last one
};

class Passes {
 public:
  /// Every stage hands in each pass once.
  Passes(Coordinator& coordinator, int stages);

  void hand_in(Step pass, Coordinator::Clock::time_point begin, Coordinator::Clock::time_point end);

  /// The driver's side: blocks until passes are complete, and takes them; nothing when `give_up` ended the wait
  /// (Monitor::wait_driver).
  std::optional<std::vector<PassTime>> await(const std::function<bool()>& give_up);

 private:
  struct Open {
    PassTime time;
    int missing;
  };
  Monitor monitor_;
  int stages_;
  std::map<Step, Open> open_;
  std::vector<PassTime> complete_;
};

}  // namespace pp::run
