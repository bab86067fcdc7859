// One direction of a network card: messages pass one after the other, and all-reduces take what they leave.
#pragma once

#include <algorithm>
#include <vector>

namespace pp::plan {

class CardTime {
 public:
  /// When a number of seconds of the card are done.
  struct Done {
    double time = 0;
    int last_step = 0;  ///< latest step of a message that was waited for
  };

  /// A message; not before the one added last has passed.
  void add(double start, double end, int step) { messages_.push_back({start, end, step}); }

  /// Of an all-reduce that begins at `from`: it stands still while a message passes. O(log messages + messages
  /// that pass meanwhile).
  Done spend(double from, double seconds) const {
    Done done{from, 0};
    auto next = std::ranges::partition_point(messages_, [&](const Message& m) { return m.end <= from; });
    for (; next != messages_.end() && seconds > 0 && next->start - done.time < seconds; ++next) {
      seconds -= std::max(0.0, next->start - done.time);
      done = {next->end, std::max(done.last_step, next->step)};
    }
    done.time += seconds;
    return done;
  }

 private:
  struct Message {
    double start, end;
    int step;
  };
  std::vector<Message> messages_;
};

}  // namespace pp::plan
