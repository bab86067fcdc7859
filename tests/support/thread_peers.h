// Ranks that are threads of this process: messages are copied through queues.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "librun/transport/peers.h"

namespace pp::test {

/// What they share.
class Wires {
 public:
  explicit Wires(int size) : size_(size), letters_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }
  /// Bytes sent by tensors and sums, letters left out.
  std::size_t sent() const { return sent_; }

 private:
  friend class ThreadPeers;
  using Place = std::tuple<run::Peers::Lane, int, int, int>;  ///< lane, from, to, tag
  struct Message {
    std::string bytes;
    std::shared_ptr<std::atomic<bool>> taken;
  };

  int size_;
  std::mutex mutex_;
  std::map<Place, std::deque<Message>> messages_;
  std::vector<std::deque<run::Peers::Letter>> letters_;  ///< per receiver
  std::size_t sent_ = 0;
};

class ThreadPeers final : public run::Peers {
 public:
  ThreadPeers(Wires& wires, int rank) : Peers(rank, wires.size()), wires_(wires) {}

  int largest_tag() const override { return 1'000'000; }

  std::unique_ptr<run::Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t /*room*/,
                                    Sent sent) override {
    const std::lock_guard held(wires_.mutex_);
    auto taken = std::make_shared<std::atomic<bool>>(false);
    wires_.messages_[{to.lane, rank(), to.rank, to.tag}].push_back({text(bytes), taken});
    wires_.sent_ += bytes.size();
    return std::make_unique<Leaving>(sent == Sent::taken ? taken : nullptr);
  }
  std::unique_ptr<run::Posted> receive(const Address& from, std::span<std::byte> room) override {
    return std::make_unique<Coming>(wires_, Wires::Place{from.lane, from.rank, rank(), from.tag}, room);
  }
  std::unique_ptr<run::Posted> send_letter(int to, std::span<const std::byte> bytes) override {
    const std::lock_guard held(wires_.mutex_);
    if (!mute) wires_.letters_[static_cast<std::size_t>(to)].push_back({rank(), text(bytes)});
    return std::make_unique<Leaving>(nullptr);
  }
  std::optional<Letter> next_letter() override {
    const std::lock_guard held(wires_.mutex_);
    auto& letters = wires_.letters_[static_cast<std::size_t>(rank())];
    if (letters.empty()) return std::nullopt;
    Letter letter = std::move(letters.front());
    letters.pop_front();
    return letter;
  }
  bool sending() override { return false; }
  [[noreturn]] void abort(int) override { std::terminate(); }

  std::atomic<bool> mute = false;  ///< its letters are lost, as of a process that was stopped

 private:
  struct Leaving final : run::Posted {
    explicit Leaving(std::shared_ptr<std::atomic<bool>> flag) : taken(std::move(flag)) {}
    bool done() override { return !taken || *taken; }
    std::size_t bytes() const override { return 0; }
    std::shared_ptr<std::atomic<bool>> taken;
  };

  struct Coming final : run::Posted {
    Coming(Wires& all, const Wires::Place& where, std::span<std::byte> to)
        : wires(all), place(where), room(to) {}
    bool done() override {
      if (arrived) return true;
      const std::lock_guard held(wires.mutex_);
      auto& queue = wires.messages_[place];
      if (queue.empty()) return false;
      arrived = queue.front().bytes.size();
      if (*arrived > room.size()) std::terminate();
      if (*arrived > 0) std::memcpy(room.data(), queue.front().bytes.data(), *arrived);
      *queue.front().taken = true;
      queue.pop_front();
      return true;
    }
    std::size_t bytes() const override { return *arrived; }
    Wires& wires;
    Wires::Place place;
    std::span<std::byte> room;
    std::optional<std::size_t> arrived;
  };

  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Wires& wires_;
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
