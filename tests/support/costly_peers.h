// Ranks that are threads, whose messages take time and work.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/thread_peers.h"

namespace pp::test {

/// A line between ranks that are threads: who sends works for `sending`, who receives for `receiving` when the
/// message has come, which is `transfer` after it was sent. `half`: after the one that is on its way, too.
struct Wire {
  using Clock = std::chrono::steady_clock;
  Seconds sending{}, receiving{}, transfer{};
  bool half = false;
  std::mutex mutex = {};
  Clock::time_point free = {};

  Clock::time_point arrival() {
    const auto took = std::chrono::duration_cast<Clock::duration>(transfer);
    if (!half) return Clock::now() + took;
    const std::lock_guard held(mutex);
    return free = std::max(free, Clock::now()) + took;
  }
};

/// Processor time, of which others on the machine take none.
inline void work(Seconds time) {
  const auto spent = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const Seconds start = spent();
  while (spent() - start < time) {
  }
}

class CostlyPeers final : public run::Peers {
  using Clock = Wire::Clock;

 public:
  CostlyPeers(ThreadPeers& peers, Wire& wire) : Peers(peers.rank(), peers.size()), peers_(peers), wire_(wire) {}

  std::unique_ptr<run::Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t,
                                    Sent sent) override {
    const bool counts = bytes.size() >= kCounts;
    const Clock::time_point arrival = counts ? wire_.arrival() : Clock::now();
    std::vector<std::byte> all(sizeof arrival + bytes.size());
    std::memcpy(all.data(), &arrival, sizeof arrival);
    std::ranges::copy(bytes, all.begin() + sizeof arrival);
    auto posted = peers_.send(to, all, all.size(), sent);
    if (counts) work(wire_.sending);
    return posted;
  }
  std::unique_ptr<run::Posted> receive(const Address& from, std::span<std::byte> room) override {
    return std::make_unique<Coming>(peers_, wire_, from, room);
  }

  int largest_tag() const override { return peers_.largest_tag(); }
  std::string host() const override { return peers_.host(); }
  std::unique_ptr<run::Posted> send_letter(int to, std::span<const std::byte> bytes) override {
    return peers_.send_letter(to, bytes);
  }
  std::optional<ControlMessage> next_control_message() override { return peers_.next_control_message(); }
  int join(std::span<const int> ranks) override { return peers_.join(ranks); }
  std::unique_ptr<run::Posted> sum(int group, std::span<std::byte> elements, Element type) override {
    return peers_.sum(group, elements, type);
  }
  bool sending() override { return peers_.sending(); }
  [[noreturn]] void abort(int exit_code) override { peers_.abort(exit_code); }

 private:
  static constexpr std::size_t kCounts = 1000;  // what ends tell each other is smaller

  struct Coming final : run::Posted {
    Coming(ThreadPeers& peers, Wire& line, const Address& from, std::span<std::byte> to)
        : wire(line), room(to), all(sizeof(Clock::time_point) + to.size()), posted(peers.receive(from, all)) {}
    bool done() override {
      if (arrived) return true;
      Clock::time_point arrival;
      if (!posted->done()) return false;
      std::memcpy(&arrival, all.data(), sizeof arrival);
      if (Clock::now() < arrival) return false;
      if (room.size() >= kCounts) work(wire.receiving);
      std::ranges::copy(std::span(all).subspan(sizeof arrival), room.begin());
      return arrived = true;
    }
    std::size_t bytes() const override { return room.size(); }
    Wire& wire;
    std::span<std::byte> room;
    std::vector<std::byte> all;
    std::unique_ptr<run::Posted> posted;
    bool arrived = false;
  };

  ThreadPeers& peers_;
  Wire& wire_;
};

/// What the first of two ranks gets.
template <class Measure>
auto between(Wire& wire, Measure&& measure) {
  Wires wires(2);
  std::array<decltype(measure(std::declval<run::Peers&>(), 1)), 2> results{};
  on_ranks(wires, [&](ThreadPeers& threads) {
    CostlyPeers peers(threads, wire);
    results[static_cast<std::size_t>(peers.rank())] = measure(peers, 1 - peers.rank());
  });
  return results[0];
}

}  // namespace pp::test
