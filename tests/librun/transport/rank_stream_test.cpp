#include "librun/transport/rank_stream.h"

#include <atomic>
#include <string>
#include <vector>

#include "librun/threads/coordinator.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/placement.h"
#include "tests/support/thread_peers.h"

#include "tests/support/doctest.h"

namespace rank_stream_test {

using namespace pp::run;
using pp::test::ThreadPeers;
using pp::test::Wires;

namespace {

constexpr int kTag = 5;

std::string text_of(std::size_t length) {
  std::string text(length, '\0');
  for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * i >> 3);
  return text;
}

}  // namespace

TEST_SUITE("librun/transport/rank_stream") {
  // The first letter of rank 1 is what a tree passes on; rank 0's answer to rank 2 comes behind it.
  TEST_CASE("what a rank whose run has begun says to one that still starts is kept for its run") {
    Wires wires(3);
    std::string kept;
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      Mailbox mailbox(peers);
      if (peers.rank() == 1) mailbox.post(2, "o1");
      if (peers.rank() == 1) mailbox.post(2, "o2");
      if (peers.rank() == 1) mailbox.flush();
      for (const std::string text : {"first", "second"})
        CHECK(gather_everywhere(mailbox, text) == std::vector<std::string>(3, text));
      while (peers.rank() == 2 && kept.size() < 4) {
        if (const auto control = mailbox.take()) kept += control->bytes;
      }
    });
    CHECK(kept == "o1o2");
  }

  TEST_CASE("hosts of one name are told apart by what they booted") {
    CHECK(
        names_of_hosts({{"a", "1"}, {"b", "2"}, {"a", "3"}, {"a", "1"}, {"a", "3"}, {"a", "4"}, {"b", "2"}}) ==
        std::vector<std::string>{"a", "b", "a#2", "a", "a#2", "a#3", "b"});
  }

  TEST_CASE("texts of any length arrive in their order") {
    const std::size_t room = RankStream::kRoom;
    const std::vector<std::size_t> lengths{0, 1, room - 1, room, room + 1, 3 * room, 0, 7};
    for (const bool late : {false, true}) {
      Wires wires(2, late);
      std::vector<std::string> received;
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        RankStream stream(peers, 1 - peers.rank(), kTag, [] {});
        for (const std::size_t length : lengths) {
          if (peers.rank() == 0) stream.send(text_of(length));
          if (peers.rank() == 1) received.push_back(stream.receive());
        }
      });
      REQUIRE(received.size() == lengths.size());
      for (std::size_t i = 0; i < lengths.size(); ++i) CHECK(received[i] == text_of(lengths[i]));
    }
  }

  TEST_CASE("who waits for nobody ends when it is told to, and what was under way is left in memory") {
    Wires wires(2);
    std::atomic<int> looks = 0;
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      if (peers.rank() == 1) return;
      RankStream stream(peers, 1, kTag, [&] {
        if (++looks == 3) throw Stopped{};
      });
      CHECK_THROWS_AS(stream.receive_message(), Stopped);
    });
    CHECK(looks == 3);
  }
}

}  // namespace rank_stream_test
