// Ranks that are threads of this process. Messages are copied when they are sent, or (Wires::late) as a library
// may at the latest: out of the sender's memory when the receiver has asked for them a few times; until then
// they are not sent; control messages always are. A receive takes the message of its turn, whichever of them is
// asked first.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "librun/transport/peers.h"

namespace pp::test {

/// What they share.
class Wires {
 public:
  explicit Wires(int size, bool late = false)
      : size_(size), late_(late), control_messages_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }
  /// Bytes sent by tensors and sums, control messages left out.
  std::size_t sent() const { return sent_; }

 private:
  friend class ThreadPeers;
  using Place = std::tuple<run::Peers::Lane, int, int, int>;  ///< lane, from, to, tag
  /// Of the first three under the mutex.
  struct Message {
    std::string copy;                  ///< not late
    std::span<const std::byte> bytes;  ///< of the sender, or of the copy
    int asked = 0;
    std::atomic<bool> taken = false;
  };
  struct Queue {
    std::map<int, std::shared_ptr<Message>> messages;  ///< by their numbers
    int sent = 0, posted = 0;
  };
  static constexpr int kLate = 3;  ///< times that are asked in vain

  int size_;
  const bool late_;
  std::mutex mutex_;
  std::map<Place, Queue> queues_;
  std::vector<std::deque<run::Peers::ControlMessage>> control_messages_;  ///< per receiver
  struct Sum {
    std::vector<double> elements;
    std::size_t came = 0, taken = 0;
  };
  std::map<std::pair<std::vector<int>, int>, Sum> sums_;  ///< by ranks and how many they had before
  std::size_t sent_ = 0;
};

class ThreadPeers final : public run::Peers {
 public:
  ThreadPeers(Wires& wires, int rank) : Peers(rank, wires.size()), wires_(wires) {}

  int largest_tag() const override { return tags; }
  std::string host() const override { return on; }

  std::unique_ptr<run::Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t /*room*/,
                                    Sent sent) override {
    const std::lock_guard held(wires_.mutex_);
    const auto message = on_its_way(bytes);
    Wires::Queue& queue = wires_.queues_[{to.lane, rank(), to.rank, to.tag}];
    queue.messages.emplace(queue.sent++, message);
    wires_.sent_ += bytes.size();
    return std::make_unique<Leaving>(sent == Sent::taken || wires_.late_ ? message : nullptr);
  }
  std::unique_ptr<run::Posted> receive(const Address& from, std::span<std::byte> room) override {
    return std::make_unique<Coming>(wires_, Wires::Place{from.lane, from.rank, rank(), from.tag}, room);
  }
  std::unique_ptr<run::Posted> send_letter(int to, std::span<const std::byte> bytes) override {
    const std::lock_guard held(wires_.mutex_);
    ++letters[static_cast<unsigned char>(bytes.size() > 1 ? bytes[1] : std::byte{0})];
    if (!mute) wires_.control_messages_[static_cast<std::size_t>(to)].push_back({rank(), text(bytes)});
    return std::make_unique<Leaving>(nullptr);
  }
  std::optional<ControlMessage> next_control_message() override {
    const std::lock_guard held(wires_.mutex_);
    auto& messages = wires_.control_messages_[static_cast<std::size_t>(rank())];
    if (messages.empty()) return std::nullopt;
    ControlMessage control = std::move(messages.front());
    messages.pop_front();
    return control;
  }
  int join(std::span<const int> ranks) override {
    groups_.emplace_back(std::vector(ranks.begin(), ranks.end()), 0);
    return static_cast<int>(groups_.size()) - 1;
  }
  /// In the order in which the ranks come.
  std::unique_ptr<run::Posted> sum(int group, std::span<std::byte> elements, Element type) override {
    auto& [ranks, before] = groups_[static_cast<std::size_t>(group)];
    auto posted = std::make_unique<Adding>(wires_, std::pair(ranks, before++), elements, type);
    const std::lock_guard held(wires_.mutex_);
    Wires::Sum& sum = wires_.sums_[posted->key];
    sum.elements.resize(posted->count());
    posted->each([&](std::size_t i, auto& mine) { sum.elements[i] += mine; });
    ++sum.came;
    ++sums;
    return posted;
  }
  bool sending() override { return false; }
  [[noreturn]] void abort(int) override { std::terminate(); }

  int tags = 1'000'000;                         ///< the largest one
  std::string on = "here";                      ///< its host's name
  std::atomic<int> sums = 0;                    ///< that it took part in
  std::array<std::atomic<int>, 256> letters{};  ///< control messages that it sent, by their kinds
  std::atomic<bool> mute = false;  ///< its control messages are lost, as of a process that was stopped

 private:
  struct Adding final : run::Posted {
    Adding(Wires& all, std::pair<std::vector<int>, int> which, std::span<std::byte> to, Element of)
        : wires(all), key(std::move(which)), room(to), type(of) {}
    std::size_t count() const { return room.size() / (type == Element::float64 ? 8 : 4); }
    template <class Visit>
    void each(Visit&& visit) {
      for (std::size_t i = 0; i < count(); ++i) {
        if (type == Element::float64) visit(i, reinterpret_cast<double*>(room.data())[i]);
        if (type == Element::float32) visit(i, reinterpret_cast<float*>(room.data())[i]);
      }
    }
    bool done() override {
      const std::lock_guard held(wires.mutex_);
      if (taken) return true;
      Wires::Sum& sum = wires.sums_[key];
      if (sum.came < key.first.size()) return false;
      each([&](std::size_t i, auto& mine) {
        mine = static_cast<std::decay_t<decltype(mine)>>(sum.elements[i]);
      });
      taken = true;
      if (++sum.taken == sum.came) wires.sums_.erase(key);
      return true;
    }
    std::size_t bytes() const override { return room.size(); }
    Wires& wires;
    std::pair<std::vector<int>, int> key;
    std::span<std::byte> room;
    Element type;
    bool taken = false;
  };

  struct Leaving final : run::Posted {
    explicit Leaving(std::shared_ptr<Wires::Message> what) : message(std::move(what)) {}
    bool done() override { return !message || message->taken; }
    std::size_t bytes() const override { return 0; }
    std::shared_ptr<Wires::Message> message;  ///< null: sent
  };

  struct Coming final : run::Posted {
    Coming(Wires& all, const Wires::Place& where, std::span<std::byte> to)
        : wires(all), place(where), room(to) {
      const std::lock_guard held(wires.mutex_);
      turn = wires.queues_[place].posted++;
    }
    bool done() override {
      if (arrived) return true;
      const std::lock_guard held(wires.mutex_);
      auto& messages = wires.queues_[place].messages;
      const auto found = messages.find(turn);
      if (found == messages.end()) return false;
      Wires::Message& message = *found->second;
      if (wires.late_ && message.asked++ < Wires::kLate) return false;
      if (message.bytes.size() > room.size()) std::terminate();
      arrived = message.bytes.size();
      if (*arrived > 0) std::memcpy(room.data(), message.bytes.data(), *arrived);
      message.taken = true;
      messages.erase(found);
      return true;
    }
    std::size_t bytes() const override { return *arrived; }
    Wires& wires;
    Wires::Place place;
    std::span<std::byte> room;
    int turn = 0;  ///< which message it takes
    std::optional<std::size_t> arrived;
  };

  std::shared_ptr<Wires::Message> on_its_way(std::span<const std::byte> bytes) const {
    auto message = std::make_shared<Wires::Message>();
    if (!wires_.late_) message->copy = text(bytes);
    message->bytes = wires_.late_ ? bytes : std::as_bytes(std::span(message->copy));
    return message;
  }
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Wires& wires_;
  std::vector<std::pair<std::vector<int>, int>> groups_;  ///< ranks, and how many sums they have had
};

/// body(peers) on every rank at once.
template <class Body>
void on_ranks(Wires& wires, Body&& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < wires.size(); ++rank) {
    threads.emplace_back([&wires, &body, rank] {
      ThreadPeers peers(wires, rank);
      body(peers);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace pp::test
