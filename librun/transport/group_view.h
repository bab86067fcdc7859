// What one member of a group of workers on several ranks sends to the others and receives from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/peers.h"
#include "librun/transport/placement.h"

namespace pp::run {

inline std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Messages that are waited for together, and the memory that they need. What is still on its way when it is
/// destroyed, in a run that has failed, is left to the library, which may still write it.
class Bundle {
 public:
  Bundle() = default;
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;
  ~Bundle() {
    if (done()) return;
    leave_to_library(std::make_shared<std::deque<std::unique_ptr<Posted>>>(std::move(messages_)));
    leave_to_library(std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(kept_)));
  }

  void add(std::unique_ptr<Posted> message) { messages_.push_back(std::move(message)); }
  template <class Memory>
  void keep(Memory memory) {
    kept_.push_back(std::make_shared<Memory>(std::move(memory)));
  }
  bool done() {
    while (!messages_.empty() && messages_.front()->done()) messages_.pop_front();
    return messages_.empty();
  }

 private:
  std::deque<std::unique_ptr<Posted>> messages_;
  std::vector<std::shared_ptr<void>> kept_;
};

/// One member's view of a group. Two members have tags of their own, two for each direction: messages of a
/// round arrive in the order in which they are sent, whatever the other round does.
class GroupView {
 public:
  enum class Round { first, second };
  static std::int64_t tags_of(const Group& members) { return 2 * std::ssize(members) * std::ssize(members); }

  GroupView(const Group& members, WorkerId me, int first_tag, const Placement& placement, Peers& peers)
      : members_(members),
        me_(static_cast<std::size_t>(std::ranges::find(members, me) - members.begin())),
        first_tag_(first_tag),
        placement_(placement),
        peers_(peers) {}

  std::size_t size() const { return members_.size(); }
  std::size_t me() const { return me_; }
  WorkerId worker() const { return members_[me_]; }
  Peers& peers() const { return peers_; }

  std::unique_ptr<Posted> send(std::size_t to, std::span<const std::byte> bytes, Round round) const {
    return peers_.send(address(to, tag(me_, to, round)), bytes, bytes.size(), Peers::Sent::gone);
  }
  std::unique_ptr<Posted> receive(std::size_t from, std::span<std::byte> room, Round round) const {
    return peers_.receive(address(from, tag(from, me_, round)), room);
  }

 private:
  int tag(std::size_t from, std::size_t to, Round round) const {
    return first_tag_ + static_cast<int>(2 * (from * size() + to)) + (round == Round::second ? 1 : 0);
  }
  Peers::Address address(std::size_t other, int tag) const {
    return {Peers::Lane::sums, placement_.of(members_[other]), tag};
  }

  const Group& members_;
  std::size_t me_;
  int first_tag_;
  const Placement& placement_;
  Peers& peers_;
};

}  // namespace pp::run
