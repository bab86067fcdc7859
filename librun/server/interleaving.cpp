#include "librun/server/interleaving.h"

#include "librun/data/order.h"

namespace pp::run {

Interleaving::Interleaving(std::uint64_t seed, int replicas, Step step)
    : seed_(seed), replicas_(static_cast<std::size_t>(replicas)) {
  restart(step, ClockTable(replicas, 0));
}

void Interleaving::pass(const ClockTable& clocks) {
  State& mine = replicas_[static_cast<std::size_t>(turn_)];
  mine.within = !mine.within;
  draw(clocks);
}

void Interleaving::leave(int replica, const ClockTable& clocks) {
  State& leaving = replicas_[static_cast<std::size_t>(replica)];
  leaving.left = true;
  if (turn_ != replica) return;
  leaving.passed_over = true;
  draw(clocks);
}

void Interleaving::restart(Step step, const ClockTable& clocks) {
  std::uint64_t mixed = seed_;
  state_ = draw_below(1ull << 63, mixed) ^ static_cast<std::uint64_t>(step);
  for (State& replica : replicas_) replica = {};
  draw(clocks);
}

// Whether somebody has left already when he could be drawn depends on time, so that he is a candidate until he
// is.
void Interleaving::draw(const ClockTable& clocks) {
  std::vector<int> candidates;
  for (turn_ = kNobody; turn_ == kNobody;) {
    candidates.clear();
    for (int r = 0; r < clocks.replicas(); ++r) {
      const State& replica = replicas_[static_cast<std::size_t>(r)];
      if (!replica.passed_over && (replica.within || clocks.may_begin(r))) candidates.push_back(r);
    }
    if (candidates.empty()) return;
    const int drawn = candidates[draw_below(candidates.size(), state_)];
    State& replica = replicas_[static_cast<std::size_t>(drawn)];
    replica.passed_over = replica.left;
    if (!replica.left) turn_ = drawn;
  }
}

}  // namespace pp::run
