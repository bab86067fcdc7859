// How rank 0's clock goes beside this rank's, from round trips of control messages at the beginning and at the
// end of a run: where it stood and how much faster it goes. Free of Torch.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "libprofile/core/units.h"
#include "librun/transport/mailbox.h"

namespace pp::run {

class RankClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A question left here at `asked`, was answered when rank 0's clock stood at `there`, and the answer was
  /// here at `heard`. Of a group of round trips the shortest counts.
  void add(Time asked, Time there, Time heard);
  /// The group is complete: its best round trip counts from now on. There are two: the first, the last.
  void close_group();
  /// Both are one clock, so far as can be told.
  bool may_be_same() const;
  /// Rank 0's clock at this time here; before the first round trip both are taken for one clock. Between two
  /// groups the clocks are taken to go evenly, and so they are beyond them.
  Time there(Time here) const;

  struct Relation {
    Seconds ahead{};         ///< this clock before rank 0's, in the first group
    Seconds error{};         ///< at most: half of the shortest round trip
    double drift = 0;        ///< seconds that this clock gains in one of rank 0's
    double drift_error = 0;  ///< at most
  };
  Relation relation() const;

 private:
  struct Best {
    Time here;         ///< the middle of the round trip
    Seconds offset{};  ///< there - here
    Seconds round_trip{};
  };
  double drift_error() const;
  double drift() const;  ///< of rank 0's clock; 0 where it may be none

  std::optional<Best> group_, first_, last_;
};

/// `rank 1: 5 s ahead (to 12 us), drift 0.3 ppm (to 2 ppm)`
std::string clock_text(int rank, const RankClock::Relation& relation);

/// The first group of round trips of all other ranks to rank 0; all ranks call it. `now` is this rank's clock.
RankClock compare_clocks(Mailbox& mailbox,
                         const std::function<RankClock::Time()>& now = std::chrono::steady_clock::now);

}  // namespace pp::run
