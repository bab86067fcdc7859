#include "librun/links/message_cost.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <thread>

#include "librun/links/link_fit.h"
#include "librun/links/rank_links.h"

namespace pp::run {

namespace {

using Clock = std::chrono::steady_clock;
using Messages = std::vector<std::unique_ptr<Posted>>;

constexpr std::size_t kTried = 5;
constexpr int kRepetitions = 5;
constexpr Seconds kShortestPiece = std::chrono::microseconds(40);
constexpr Seconds kShortestRun = std::chrono::milliseconds(10);

// How many messages a run has, and how long its ends compute for each.
struct Rhythm {
  int messages = 0;
  Seconds piece{};
};

// A message has arrived before the piece behind the next one ends, so that none waits for another.
Rhythm rhythm_of(Seconds transfer) {
  const Seconds piece = std::max(2 * transfer, kShortestPiece);
  return {std::max(2, static_cast<int>(kShortestRun / piece)), piece};
}

// Both go on at once; apart from messages that are posted already.
void shake_hands(Peers& peers, int other) {
  std::byte nothing{};
  const Peers::Address there{.lane = Peers::Lane::sums, .rank = other};
  const auto coming = peers.receive(there, {&nothing, 1});
  wait_for(*peers.send(there, {&nothing, 1}, 1, Peers::Sent::gone));
  wait_for(*coming);
}

// One end of a pair: a run computes in pieces, and with messages posts one before each, as a worker does: who
// receives posts one ahead.
class End {
 public:
  End(Peers& peers, int other, bool first, Bytes size, Rhythm rhythm)
      : peers_(peers), other_(other), first_(first), rhythm_(rhythm), mover_(peers) {
    rooms_.resize(first ? 1 : static_cast<std::size_t>(rhythm.messages));
    for (auto& room : rooms_) room.resize(static_cast<std::size_t>(size.value));
  }

  // The processor time that it takes.
  Seconds run(bool with_messages) {
    const int messages = with_messages ? rhythm_.messages : 0;
    int posted = 0;
    Messages under_way;
    if (!first_ && posted < messages) under_way.push_back(post(posted++));
    shake_hands(peers_, other_);
    const Seconds start = spent_here() + mover_.spent();
    for (int piece = 0; piece < rhythm_.messages; ++piece) {
      if (posted < messages) under_way.push_back(post(posted++));
      work_.run(rhythm_.piece);
      std::erase_if(under_way, [](const auto& message) { return message->done(); });
    }
    work_.run(rhythm_.piece);
    for (const auto& message : under_way) {
      while (!message->done()) std::this_thread::sleep_for(kShortestRest);  // waiting is no work
    }
    return spent_here() + mover_.spent() - start;
  }

 private:
  std::unique_ptr<Posted> post(int message) {
    std::vector<std::byte>& room = rooms_[first_ ? 0 : static_cast<std::size_t>(message)];
    if (first_) return peers_.send({.rank = other_}, room, room.size(), Peers::Sent::gone);
    return peers_.receive({.rank = other_}, room);
  }

  Peers& peers_;
  int other_;
  bool first_;
  Rhythm rhythm_;
  Computation work_;
  std::vector<std::vector<std::byte>> rooms_;
  Mover mover_;
};

template <class Value>
Value upper_median(std::vector<Value> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Both get what the end has that says `mine`.
template <class Value>
void tell(Peers& peers, int other, bool mine, std::span<Value> values) {
  if (mine) return send_to(peers, other, std::as_bytes(values));
  receive_from(peers, other, std::as_writable_bytes(values));
}

}  // namespace

bool is_tried(std::size_t index, std::size_t sizes) {
  for (std::size_t i = 0; i < kTried; ++i) {
    if (index == i * (sizes - 1) / (kTried - 1)) return true;
  }
  return false;
}

KeptTime measure_kept(Peers& peers, int other, bool first, Bytes size, Seconds transfer) {
  Rhythm rhythm = rhythm_of(transfer);
  tell(peers, other, first, std::span(&rhythm, 1));
  End end(peers, other, first, size, rhythm);
  Seconds alone = Seconds::max(), busy = Seconds::max();  // the least: what disturbs a run only adds to it
  for (int i = 0; i < kRepetitions; ++i) {
    alone = std::min(alone, end.run(/*with_messages=*/false));
    busy = std::min(busy, end.run(/*with_messages=*/true));
  }
  const Seconds here = (busy - alone) / rhythm.messages;
  Seconds there = here;
  tell(peers, other, first, std::span(&there, 1));
  Seconds most = std::max(here, there);
  tell(peers, other, !first, std::span(&most, 1));
  return {size, most};
}

Seconds measure_both_ways(Peers& peers, int other, bool first, Bytes size, int repetitions) {
  std::vector<std::byte> out(static_cast<std::size_t>(size.value)), in(out.size());
  std::vector<Seconds> times;
  for (int i = 0; i < repetitions; ++i) {
    shake_hands(peers, other);
    const auto start = Clock::now();
    const auto coming = peers.receive({.rank = other}, in);
    const auto leaving = peers.send({.rank = other}, out, out.size(), Peers::Sent::gone);
    wait_for(*coming);
    wait_for(*leaving);
    times.push_back(Clock::now() - start);
  }
  std::vector<Seconds> there = times;
  tell(peers, other, !first, std::span(there));
  std::ranges::transform(times, there, times.begin(), [](Seconds a, Seconds b) { return std::max(a, b); });
  return upper_median(std::move(times));
}

void set_message_cost(Level& level, std::span<const KeptTime> kept) {
  std::vector<LinePoint> points;
  for (const KeptTime& one : kept) {
    const Seconds transfer = level.latency + one.size / level.bandwidth;
    points.push_back({static_cast<double>(one.size.value), one.time.count(), transfer.count()});
  }
  if (points.size() < 2) return;
  const Line line = fit_line(points);
  level.message_cost = Seconds(line.start);
  level.overlap = std::clamp(1 - line.slope * level.bandwidth.value, 0.0, 1.0);
}

Seconds spent_here() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

Mover::Mover(Peers& peers) : peers_(peers) {
  thread_.add([this] { serve(); });
}

Mover::~Mover() {
  ended_ = true;
  thread_.join();
}

void Mover::serve() noexcept {
  for (auto rest = kShortestRest; !ended_; rest = std::min(2 * rest, kLongestRest)) {
    if (peers_.sending()) rest = kShortestRest;
    peers_.next_control_message();  // nobody writes any; asking moves on what is coming
    spent_ = spent_here();
    std::this_thread::sleep_for(rest);
  }
}

Computation::Computation() : numbers_(4096, 1.0F) {
  constexpr int kProbes = 50;
  constexpr long kProbe = 50;
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kProbes; ++i) {
    const Seconds start = spent_here();
    run(kProbe);
    least = std::min(least, (spent_here() - start).count());
  }
  per_second_ = kProbe / least;
}

void Computation::run(Seconds time) { run(static_cast<long>(time.count() * per_second_) + 1); }

void Computation::run(long rounds) {
  for (long round = 0; round < rounds; ++round) {
    for (float& number : numbers_) number = 0.5F * number + 1;
  }
  sink_ = numbers_.front();
}

}  // namespace pp::run
