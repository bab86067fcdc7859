#include "librun/transport/rank_clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "librun/transport/packed.h"

namespace pp::run {

namespace {

constexpr int kRoundTrips = 8;

RankClock::Time later(RankClock::Time time, Seconds by) {
  return time + std::chrono::duration_cast<RankClock::Time::duration>(by);
}

}  // namespace

void RankClock::add(Time asked, Time there, Time heard) {
  const Seconds round_trip = heard - asked;
  const Time middle = later(asked, round_trip / 2);
  const Best found{middle, Seconds(there - middle), round_trip};
  if (!group_ || round_trip < group_->round_trip) group_ = found;
}

void RankClock::close_group() {
  if (group_) (first_ ? last_ : first_) = std::exchange(group_, std::nullopt);
}

bool RankClock::may_be_same() const {
  return !first_ || std::abs(first_->offset.count()) <= first_->round_trip.count() / 2;
}

double RankClock::drift_error() const {
  if (!first_ || !last_ || last_->here <= first_->here) return 0;
  return (first_->round_trip + last_->round_trip) / 2 / Seconds(last_->here - first_->here);
}

double RankClock::drift() const {
  const double error = drift_error();
  if (error == 0) return 0;
  const double drift = (last_->offset - first_->offset) / Seconds(last_->here - first_->here);
  return std::abs(drift) > error ? drift : 0;
}

RankClock::Time RankClock::there(Time here) const {
  if (!first_) return here;
  return later(here, first_->offset + drift() * Seconds(here - first_->here));
}

RankClock::Relation RankClock::relation() const {
  if (!first_) return {};
  return {-first_->offset, first_->round_trip / 2, -drift(), drift_error()};
}

std::string clock_text(int rank, const RankClock::Relation& relation) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "rank %d: %.6f s %s (to %.0f us), drift %.1f ppm (to %.1f ppm)", rank,
                std::abs(relation.ahead.count()), relation.ahead.count() < 0 ? "behind" : "ahead",
                1e6 * relation.error.count(), 1e6 * relation.drift, 1e6 * relation.drift_error);
  return text.data();
}

// Rank 0 answers whoever asks, until all have what they need; only then other control messages follow.
RankClock compare_clocks(Mailbox& mailbox, const std::function<RankClock::Time()>& now) {
  RankClock clock;
  if (mailbox.rank() == 0) {
    std::map<int, int> left;
    for (int rank = 1; rank < mailbox.size(); ++rank) left[rank] = kRoundTrips;
    while (!left.empty()) {
      const Peers::ControlMessage question = await_at_start(mailbox, [&] { return left.begin()->first; });
      post_at_start(mailbox, question.from, Packer().add(now()).take());
      if (--left[question.from] == 0) left.erase(question.from);
    }
    for (int rank = 1; rank < mailbox.size(); ++rank) post_at_start(mailbox, rank, "");
    return clock;
  }
  const auto answer = [&] { return await_at_start(mailbox, [] { return 0; }); };
  for (int i = 0; i < kRoundTrips; ++i) {
    const RankClock::Time asked = now();
    post_at_start(mailbox, 0, "");
    const Peers::ControlMessage control = answer();
    clock.add(asked, Unpacker(control.bytes).take<RankClock::Time>(), now());
  }
  clock.close_group();
  answer();
  return clock;
}

}  // namespace pp::run
