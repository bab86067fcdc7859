#include "apps/plan/search_clock.h"

#include <utility>

namespace pp::plan_tool {

SearchClock::SearchClock(std::string what, Seconds limit, const cli::Shell& shell)
    : phase_(std::move(what) + " takes more than 2 s; --time-limit ends it after " + to_text(limit)),
      limit_(limit),
      line_(shell) {}

std::function<bool(const plan::SearchProgress&)> SearchClock::observer() {
  return [this](const plan::SearchProgress& progress) { return look(progress); };
}

bool SearchClock::look(const plan::SearchProgress& progress) {
  constexpr Seconds kSilent{2}, kBetween{0.1};
  const Seconds elapsed = this->elapsed();
  if (elapsed >= limit_) return false;
  if (elapsed < kSilent || elapsed - shown_ < kBetween) return true;
  shown_ = elapsed;
  std::string detail = to_text(elapsed) + ", on " + std::to_string(progress.devices) + " devices";
  if (progress.best) detail += ", best step so far " + to_text(*progress.best);
  line_.update(phase_, elapsed / limit_, detail);
  return true;
}

}  // namespace pp::plan_tool
