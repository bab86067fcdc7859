// What operations and messages take by themselves, which the lower bounds add up; and one direction of a
// network card, where messages pass one after the other and all-reduces take what they leave.
#pragma once

#include <algorithm>
#include <vector>

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// What one operation sends to a consumer on another worker; no tensors: nothing is sent.
struct Sent {
  double bytes = 0;
  int tensors = 0;
  Link link{};
};

/// Durations and messages of a set of programs. An operation takes its own time and, before it, that of the
/// messages that it receives from other workers, after it that of those that it sends (handling_time()). Both
/// are parts of the message's way: it leaves when the sender's part begins, has arrived when the receiver's
/// ends, and takes no longer than between idle workers unless a port is busy.
class OpCosts {
 public:
  /// Both must outlive this object.
  OpCosts(const ProgramIndex& index, const SimulationInput& input);

  /// Seconds; a slice of a split micro-batch takes its part. An AR takes at least 0: what it really takes
  /// depends on its mode and on other workers.
  double duration(int id) const {
    return own_time(id) + (handles_messages_ ? send_time(id, receive_time(id)) : 0);
  }
  /// Whether some link asks time of the devices.
  bool handles_messages() const { return handles_messages_; }
  /// The part of duration() that is no message's; of L and E what copying keeps the device from its work.
  double own_time(int id) const;
  /// Seconds of all messages that the operation receives from other workers; of those that it sends, added to
  /// `sum`.
  double receive_time(int id) const;
  double send_time(int id, double sum = 0) const;
  /// What L or E copies takes, whoever copies it.
  double copy_time(int id) const;
  /// `edge` as for_each_producer() gives it. Empty within a worker, and where nothing is sent.
  Sent message(int producer, int consumer, int edge) const;
  /// Seconds from the end of an operation until the receiver may begin with its message, when the ports are
  /// free.
  double free_transfer(int producer, int consumer, int edge) const;

 private:
  /// What one whole micro-batch puts on a dependency.
  struct Flow {
    double activation = 0;  ///< bytes
    double gradient = 0;
    int activation_tensors = 0;
    int gradient_tensors = 0;
  };

  static std::vector<bool> find_first(const ProgramIndex& index, const SimulationInput& input);
  static double price(InstructionKind kind, const StageCosts& costs, bool first);

  const ProgramIndex& index_;
  const SimulationInput& input_;
  std::vector<bool> first_;  ///< by id, as find_first() says
  std::vector<Flow> flows_;  ///< per dependency
  bool handles_messages_;    ///< some link asks time of the devices
};

class CardTime {
 public:
  /// When a number of seconds of the card are done.
  struct Done {
    double time = 0;
    int last_step = 0;  ///< latest step of a message that was waited for
  };

  /// A message; not before the one added last has passed.
  void add(double start, double end, int step) { messages_.push_back({start, end, step}); }

  /// When `seconds` of an all-reduce that begins at `from` are done: it stands still while a message passes.
  /// O(log messages + messages that pass meanwhile).
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
