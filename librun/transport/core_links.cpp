#include "librun/transport/core_links.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>

#include "librun/transport/mailbox.h"
#include "librun/worker/thread.h"

namespace pp::run {

namespace {

using Clock = Coordinator::Clock;

// Threads pinned to their cores; the first error of any leaves run().
class Team {
 public:
  explicit Team(std::vector<Cores> cores)
      : coordinator_(static_cast<int>(cores.size()), Seconds(60)), cores_(std::move(cores)) {}

  Coordinator& coordinator() { return coordinator_; }

  // body(me) on every thread.
  template <class Body>
  void run(const Body& body) {
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < cores_.size(); ++me) threads.emplace_back([&, me] { guarded(me, body); });
    for (std::thread& thread : threads) thread.join();
    if (const std::exception_ptr error = coordinator_.error()) std::rethrow_exception(error);
  }

 private:
  template <class Body>
  void guarded(std::size_t me, const Body& body) {
    try {
      pin_thread(cores_[me]);
      body(static_cast<int>(me));
    } catch (const Stopped&) {
      return;  // another thread has the error
    } catch (...) {
      coordinator_.stop(std::current_exception());
    }
  }

  Coordinator coordinator_;
  std::vector<Cores> cores_;
};

// One value of every cache line: the line is what travels.
template <class Value>
Value read_lines(const std::vector<Value>& buffer) {
  constexpr std::size_t kPerLine = 64 / sizeof(Value);
  Value sum = 0;
  for (std::size_t i = 0; i < buffer.size(); i += kPerLine) sum += buffer[i];
  return sum;
}

// Two workers, each with a mailbox, that play ping-pong.
class PingPong {
 public:
  PingPong(const Cores& first, const Cores& second) : team_({first, second}) {
    for (int i = 0; i < 2; ++i)
      boxes_[i] = std::make_unique<Mailbox<Letter>>(team_.coordinator(), WorkerId{i}, std::vector<int>{2, 2});
  }

  // Seconds of each counted message, both directions.
  std::vector<double> play(Bytes size, const LinkSweep& sweep) {
    std::vector<std::vector<double>> times(2);
    team_.run([&](int me) { side(me, size, sweep, times[static_cast<std::size_t>(me)]); });
    times[0].insert(times[0].end(), times[1].begin(), times[1].end());
    return times[0];
  }

 private:
  using Buffer = std::vector<std::uint64_t>;
  struct Letter {
    std::shared_ptr<const Buffer> bytes;
    Clock::time_point sent;
  };

  void side(int me, Bytes size, const LinkSweep& sweep, std::vector<double>& times) {
    const auto mine = std::make_shared<Buffer>(static_cast<std::size_t>((size.value + 7) / 8));
    volatile std::uint64_t keep = 0;  // the reads must not be optimised away
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      const Tag there{.consumer = StageId{1}, .micro_batch = i};
      const Tag back{.consumer = StageId{0}, .micro_batch = i};
      if (me == 0) send(me, there, mine, i);
      const Letter letter = boxes_[me]->take(WorkerId{1 - me}, me == 0 ? back : there);
      keep = keep + read_lines(*letter.bytes);
      const Seconds time = Clock::now() - letter.sent;
      if (i >= sweep.warm_up) times.push_back(time.count());
      if (me == 1) send(me, back, mine, i);
    }
  }

  // Fresh bytes each time, written on this core, as a layer writes its output.
  void send(int me, const Tag& tag, const std::shared_ptr<Buffer>& mine, int value) {
    std::ranges::fill(*mine, static_cast<std::uint64_t>(value));
    boxes_[1 - me]->put(WorkerId{me}, tag, Letter{mine, Clock::now()});
  }

  Team team_;
  std::unique_ptr<Mailbox<Letter>> boxes_[2];
};

// Adds elements [first, last) of all vectors into those of the first.
void add_slice(std::vector<std::vector<float>>& parts, std::size_t first, std::size_t last) {
  std::vector<float>& sum = parts.front();
  for (std::size_t p = 1; p < parts.size(); ++p) {
    for (std::size_t i = first; i < last; ++i) sum[i] += parts[p][i];
  }
}

std::vector<double> reduce_times(const std::vector<Cores>& cores, Bytes size, const LinkSweep& sweep) {
  const std::size_t length = static_cast<std::size_t>(size.value) / sizeof(float);
  std::vector<WorkerId> members;
  for (std::size_t w = 0; w < cores.size(); ++w) members.push_back(WorkerId{static_cast<int>(w)});
  std::vector<std::vector<float>> parts(cores.size(), std::vector<float>(length));
  std::vector<double> times;
  Team team(cores);
  Barrier barrier(team.coordinator(), members);
  team.run([&](int worker) {
    const auto me = static_cast<std::size_t>(worker);
    const auto meet = [&] { barrier.arrive_and_wait(WorkerId{worker}, "the other threads at the all-reduce"); };
    volatile float keep = 0;
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      std::ranges::fill(parts[me], 1.0F);
      meet();
      const auto start = Clock::now();
      add_slice(parts, length * me / cores.size(), length * (me + 1) / cores.size());
      meet();
      keep = keep + read_lines(parts.front());
      if (me == 0 && i >= sweep.warm_up) times.push_back(Seconds(Clock::now() - start).count());
      meet();  // nobody writes its next vector while another one still reads
    }
  });
  return times;
}

}  // namespace

std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, PingPong(first, second).play(size, sweep)));
  return samples;
}

std::vector<LinkSample> sample_all_reduce(const std::vector<Cores>& cores, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep)) samples.push_back(summarise(size, reduce_times(cores, size, sweep)));
  return samples;
}

}  // namespace pp::run
