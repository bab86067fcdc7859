#include "librun/threads/message_queue.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "librun/transport/channel.h"
#include "tests/support/doctest.h"

namespace message_queue_test {

using namespace pp;
using namespace pp::run;

namespace {

template <class Message>
void put(MessageQueue<Message>& queue, std::int64_t number, Message message) {
  queue.put(
      number, [&](Message& slot) { slot = std::move(message); }, [] { return "room"; });
}

template <class Message>
Message take(MessageQueue<Message>& queue, std::int64_t number) {
  return queue.take(
      number, [](Message& slot) { return std::move(slot); }, [] { return "a message"; });
}

}  // namespace

TEST_SUITE("librun/threads/message_queue") {
  TEST_CASE("messages are matched by number, whatever the order of arrival") {
    Coordinator coordinator(2);
    MessageQueue<std::string> queue(coordinator, WorkerId{1}, WorkerId{0}, 3);
    put<std::string>(queue, 7, "seven");
    put<std::string>(queue, 5, "five");
    put<std::string>(queue, 6, "six");
    CHECK(take(queue, 6) == "six");
    put<std::string>(queue, 8, "eight");
    CHECK(take(queue, 7) == "seven");
    CHECK(take(queue, 8) == "eight");
    CHECK(take(queue, 5) == "five");
  }

  TEST_CASE("a sender waits while its window is unread, and the report says for what") {
    Coordinator coordinator(2);
    MessageQueue<int> queue(coordinator, WorkerId{1}, WorkerId{0}, 2);
    std::atomic<int> sent = 0;
    std::thread sender([&] {
      for (int m = 0; m < 10; ++m) {
        put(queue, m, m);
        ++sent;
      }
    });
    while (coordinator.state_of(WorkerId{1}) != "worker 1: between steps, waits for room")
      std::this_thread::yield();
    CHECK(sent == 2);
    int most = 0;
    for (int m = 0; m < 10; ++m) {
      CHECK(take(queue, m) == m);
      // Taken m+1, unread at most 2, and one more put may have returned before it was counted here.
      most = std::max(most, sent - (m + 1));
    }
    sender.join();
    CHECK(most <= 2);
  }

  TEST_CASE("many workers at once lose and duplicate nothing") {
    constexpr int kWorkers = 4, kMessages = 500;
    Coordinator coordinator(kWorkers);
    std::vector<std::unique_ptr<MessageQueue<int>>> queues;  // of each worker, to the next one in a ring
    for (int w = 0; w < kWorkers; ++w) {
      queues.push_back(
          std::make_unique<MessageQueue<int>>(coordinator, WorkerId{w}, WorkerId{(w + 1) % kWorkers}, 3));
    }
    std::vector<long> sums(kWorkers, 0);
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        const auto me = static_cast<std::size_t>(w),
                   before = static_cast<std::size_t>((w + kWorkers - 1) % kWorkers);
        for (int i = 0; i < kMessages; ++i) {
          put(*queues[me], i, i * kWorkers + w);
          sums[me] += take(*queues[before], i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Sum over i of 4 i + before = 4 * 499*500/2 + 500 * before.
    for (int w = 0; w < kWorkers; ++w) {
      const int before = (w + kWorkers - 1) % kWorkers;
      CHECK(sums[static_cast<std::size_t>(w)] == 4 * 499 * 500 / 2 + 500 * before);
    }
  }

  TEST_CASE("a message is named by what it is, and by the step or the evaluation it belongs to") {
    Channel channel{.from = WorkerId{2}, .layer = 3, .per_step = 4};
    CHECK(describe(channel, 9) == "the output of layer 3 for micro-batch 1 of step 3 from worker 2");
    channel.direction = Direction::gradient;
    CHECK(describe(channel, 3) == "the gradient of layer 3 for micro-batch 3 of step 1 from worker 2");
    channel.direction = Direction::evaluation;
    CHECK(describe(channel, 4) == "the output of layer 3 for micro-batch 0 of evaluation 2 from worker 2");
  }
}

}  // namespace message_queue_test
