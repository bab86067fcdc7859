// How far other clocks are ahead and how they drift, from round trips.
#include "librun/transport/rank_clock.h"

#include <chrono>
#include <cmath>
#include <vector>

#include "tests/support/thread_peers.h"

#include "tests/support/doctest.h"

namespace rank_clock_test {

using namespace pp;
using run::RankClock;
using Time = RankClock::Time;

namespace {

/// A time of either clock, in microseconds since its beginning.
Time at(double us) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::duration<double, std::micro>(us)));
}
double us(Time time) { return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count(); }

}  // namespace

TEST_SUITE("librun/transport/rank_clock") {
  TEST_CASE("without round trips both clocks are one") {
    const RankClock clock;
    CHECK(us(clock.there(at(17))) == 17);
    CHECK(clock.may_be_same());
  }

  TEST_CASE("the shortest round trip of a group counts, and half of it is the error") {
    RankClock clock;
    clock.add(at(1000), at(6300), at(1400));  // 400 us there and back: 6300 - 1200 = 5100 behind
    clock.add(at(2000), at(7010), at(2020));  // 20 us: 7010 - 2010 = 5000
    clock.add(at(3000), at(8200), at(3100));  // 100 us: 5150
    CHECK(us(clock.there(at(0))) == 0);       // not before the group is complete
    clock.close_group();
    CHECK(us(clock.there(at(0))) == doctest::Approx(5000));
    CHECK(clock.relation().ahead.count() == doctest::Approx(-5000e-6));
    CHECK(clock.relation().error.count() == doctest::Approx(10e-6));
    CHECK_FALSE(clock.may_be_same());
  }

  TEST_CASE("a second group tells the drift, which goes on between and behind the groups") {
    RankClock clock;
    clock.add(at(-1), at(1000), at(1));
    clock.close_group();
    // A second later rank 0 shows 1000 + 1,000,100 us: this clock loses 100 us a second, -100 ppm.
    clock.add(at(1'000'000 - 10), at(1'001'100), at(1'000'000 + 10));
    clock.close_group();
    CHECK(us(clock.there(at(500'000))) == doctest::Approx(501'050));
    CHECK(us(clock.there(at(2'000'000))) == doctest::Approx(2'001'200));
    CHECK(clock.relation().drift == doctest::Approx(-100e-6));
    CHECK(clock.relation().drift_error == doctest::Approx(11e-6));  // (2 + 20) us / 2 in a second
    // The next group takes the place of the second: 300 us in 3 s are 100 ppm again, an answer without a group
    // is not heard.
    clock.add(at(3'000'000), at(3'001'300), at(3'000'000));
    clock.close_group();
    clock.close_group();
    CHECK(us(clock.there(at(4'000'000))) == doctest::Approx(4'001'400));
  }

  TEST_CASE("a drift that the round trips do not prove is none") {
    RankClock clock;
    clock.add(at(-10), at(1000), at(10));
    clock.close_group();
    clock.add(at(990), at(2010), at(1010));  // 10 us more in a millisecond, which is known to 20 us
    clock.close_group();
    CHECK(clock.relation().drift == 0);
    CHECK(clock.relation().drift_error == doctest::Approx(20e-3));
    CHECK(us(clock.there(at(1000))) == doctest::Approx(2000));
  }

  TEST_CASE("a difference within half of the round trip may be none") {
    RankClock clock;
    clock.add(at(100), at(148), at(200));  // 2 us behind the middle, to 50 us
    clock.close_group();
    CHECK(clock.may_be_same());
  }

  TEST_CASE("ranks whose clocks stand apart and go unevenly find that out from messages") {
    // Rank r's clock is r * 1000 s ahead of the machine's and gains r * 1 % on it.
    const Time begin = std::chrono::steady_clock::now();
    const auto clock_of = [&](int rank) {
      return [rank, begin] {
        const Seconds passed = std::chrono::steady_clock::now() - begin;
        return begin +
               std::chrono::duration_cast<Time::duration>(Seconds(1000.0 * rank) + passed * (1 + 0.01 * rank));
      };
    };
    std::vector<RankClock> clocks(3);
    test::Wires wires(3);
    test::on_ranks(wires, [&](test::ThreadPeers& peers) {
      run::Mailbox mailbox(peers);
      clocks[static_cast<std::size_t>(peers.rank())] = run::compare_clocks(mailbox, clock_of(peers.rank()));
    });
    CHECK(clocks[0].may_be_same());
    for (const int rank : {1, 2}) {
      CAPTURE(rank);
      const RankClock& clock = clocks[static_cast<std::size_t>(rank)];
      CHECK_FALSE(clock.may_be_same());
      // Since `begin` it has gained 1 % of the time that passed, which the last reading bounds.
      const Seconds passed = std::chrono::steady_clock::now() - begin;
      const Seconds ahead = clock.relation().ahead;
      CHECK(ahead.count() >= 1000.0 * rank - clock.relation().error.count());
      CHECK(ahead.count() <= 1000.0 * rank + 0.01 * rank * passed.count() + clock.relation().error.count());
    }
  }

  TEST_CASE("a clock is said in words") {
    CHECK(run::clock_text(
              1, {.ahead = Seconds(-5), .error = Seconds(12e-6), .drift = 3.14e-7, .drift_error = 2e-6}) ==
          "rank 1: 5.000000 s behind (to 12 us), drift 0.3 ppm (to 2.0 ppm)");
  }
}

}  // namespace rank_clock_test
