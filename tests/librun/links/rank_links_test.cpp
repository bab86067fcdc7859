#include "librun/links/rank_links.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::run;

namespace {

/// What ranks that are threads share.
class Exchange {
 public:
  explicit Exchange(int size) : size_(size) {}

  void send(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    messages_[{from, to}].emplace(bytes.begin(), bytes.end());
    changed_.notify_all();
  }

  void receive(int from, int to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& queue = messages_[{from, to}];
    changed_.wait(lock, [&] { return !queue.empty(); });
    CHECK(queue.front().size() == bytes.size());
    std::ranges::copy(queue.front(), bytes.begin());
    queue.pop();
  }

  /// The values are not summed: the meter only times it.
  void meet() {
    std::unique_lock lock(mutex_);
    const long generation = generation_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return generation != generation_; });
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::queue<std::vector<std::byte>>> messages_;
  int arrived_ = 0;
  long generation_ = 0;
};

class ThreadRanks : public Ranks {
 public:
  ThreadRanks(Exchange& exchange, int rank, int size) : Ranks(rank, size), exchange_(exchange) {}
  void send(int to, std::span<const std::byte> bytes) override { exchange_.send(rank(), to, bytes); }
  void receive(int from, std::span<std::byte> bytes) override { exchange_.receive(from, rank(), bytes); }
  void all_reduce(std::span<float>) override { exchange_.meet(); }

 private:
  Exchange& exchange_;
};

/// What each of `size` ranks gets.
std::vector<std::optional<Cluster>> measure(int size, const LinkSweep& sweep, std::vector<double>& progress) {
  Exchange exchange(size);
  std::vector<std::optional<Cluster>> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadRanks ranks(exchange, r, size);
      results[static_cast<std::size_t>(r)] = measure_rank_links(ranks, *make_host_medium(ranks), sweep,
                                                                [&](double done) { progress.push_back(done); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace

TEST_SUITE("librun/links/rank_links") {
  TEST_CASE("every pair of ranks is measured, rank 0 gets the cluster") {
    const LinkSweep sweep{.smallest = Bytes(64), .largest = Bytes(256), .repetitions = 4, .warm_up = 1};
    std::vector<double> progress;
    const auto results = measure(3, sweep, progress);
    CHECK_FALSE(results[1].has_value());
    CHECK_FALSE(results[2].has_value());
    REQUIRE(results[0].has_value());
    const Cluster& cluster = *results[0];
    REQUIRE(cluster.devices.size() == 3);
    for (const Device& device : cluster.devices) {
      CHECK_FALSE(device.node.empty());
      CHECK_FALSE(device.cores.empty());
      CHECK(device.memory.value > 0);
    }
    std::int64_t samples = 0;
    for (const Level& level : cluster.levels) samples += level.samples.front().time.samples;
    CHECK(samples == 3 * 4);  // 3 pairs, 4 round trips each
    CHECK(cluster.levels.back().devices == 3);
    CHECK(cluster.levels.back().name == "node");  // all ranks are on this host
    REQUIRE(cluster.levels.back().all_reduce.has_value());
    CHECK(cluster.levels.back().all_reduce->samples.size() == 3);  // 64, 128, 256 bytes
    CHECK(progress == std::vector<double>{0.25, 0.5, 0.75, 1});
  }

  TEST_CASE("one rank alone has no link") {
    Exchange exchange(1);
    ThreadRanks alone(exchange, 0, 1);
    CHECK_THROWS_WITH_AS(measure_rank_links(alone, *make_host_medium(alone), {}),
                         "1 rank: a link needs at least 2; start with mpirun -n 2 or more", Error);
  }
}
