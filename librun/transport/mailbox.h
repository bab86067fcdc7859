// Where messages for one worker arrive: matched by tag, not by order, bounded per sender. Free of Torch.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "librun/transport/coordinator.h"

namespace pp::run {

enum class Direction { activation, gradient, evaluation };

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::Direction> {
  static constexpr std::array table{std::pair{run::Direction::activation, "activation"sv},
                                    std::pair{run::Direction::gradient, "gradient"sv},
                                    std::pair{run::Direction::evaluation, "evaluation"sv}};
};
}  // namespace pp

namespace pp::run {

/// Names one message of the whole run. The tensor is `output` of model-wide layer `layer`; `consumer` is the
/// stage that reads it (activation) or sends its gradient back.
struct Tag {
  Direction direction = Direction::activation;
  int layer = 0;
  int output = 0;
  StageId consumer{};
  std::int64_t step = 0;  ///< of the run; of an evaluation: its mini-batches, counted over all evaluations
  int micro_batch = 0;    ///< within the step
  auto operator<=>(const Tag&) const = default;
};

/// `the gradient of layer 3 for micro-batch 1 from worker 2`
std::string describe(const Tag& tag, WorkerId from);

template <class Message>
class Mailbox {
 public:
  /// `capacity[w]`: messages of worker w that may lie here unread. Both outlive the mailbox's users.
  Mailbox(Coordinator& coordinator, WorkerId owner, std::vector<int> capacity)
      : monitor_(coordinator), owner_(owner), capacity_(std::move(capacity)), unread_(capacity_.size(), 0) {}

  /// Blocks `from` while it has too much unread here. Throws as Monitor::wait does.
  void put(WorkerId from, const Tag& tag, Message message) {
    Monitor::Lock lock = monitor_.lock();
    int& unread = unread_[index(from)];
    monitor_.wait(
        lock, from, [&] { return unread < capacity_[index(from)]; }, [&] { return full(); });
    ++unread;
    messages_.emplace(tag, std::pair{from, std::move(message)});
    lock.unlock();
    monitor_.notify();
  }

  /// Blocks the owner until the message is there. `from` only serves the stall report.
  Message take(WorkerId from, const Tag& tag) {
    Monitor::Lock lock = monitor_.lock();
    auto found = messages_.end();
    monitor_.wait(
        lock, owner_, [&] { return (found = messages_.find(tag)) != messages_.end(); },
        [&] { return describe(tag, from); });
    const WorkerId sender = found->second.first;
    Message message = std::move(found->second.second);
    messages_.erase(found);
    const bool was_full = unread_[index(sender)]-- == capacity_[index(sender)];
    lock.unlock();
    if (was_full) monitor_.notify();
    return message;
  }

 private:
  std::string full() const { return "room in the mailbox of worker " + std::to_string(number(owner_)); }

  Monitor monitor_;
  WorkerId owner_;
  std::vector<int> capacity_;
  std::vector<int> unread_;
  std::map<Tag, std::pair<WorkerId, Message>> messages_;
};

}  // namespace pp::run
