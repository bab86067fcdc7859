#include "librun/control/passes.h"

#include <algorithm>
#include <utility>

namespace pp::run {

Passes::Passes(Coordinator& coordinator, int stages) : monitor_(coordinator), stages_(stages) {}

void Passes::hand_in(Step pass, Coordinator::Clock::time_point begin, Coordinator::Clock::time_point end) {
  const Monitor::Lock lock = monitor_.lock();
  const auto open = open_.try_emplace(pass, Open{{pass, begin, end}, stages_}).first;
  PassTime& time = open->second.time;
  time.begin = std::min(time.begin, begin);
  time.end = std::max(time.end, end);
  if (--open->second.missing > 0) return;
  complete_.push_back(time);
  open_.erase(open);
  monitor_.notify();
}

std::optional<std::vector<PassTime>> Passes::await(const std::function<bool()>& give_up) {
  Monitor::Lock lock = monitor_.lock();
  if (!monitor_.wait_driver(
          lock, [&] { return !complete_.empty(); }, give_up))
    return std::nullopt;
  return std::exchange(complete_, {});
}

}  // namespace pp::run
