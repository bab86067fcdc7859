#include "libprofile/core/units.h"

#include <string>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace units_test {

using namespace pp;
using pp::test::error_text;

TEST_SUITE("libprofile/core/units") {
  TEST_CASE("binary and decimal suffixes of sizes have their own meaning") {
    CHECK(parse_bytes("4096", "x") == Bytes(4096));
    CHECK(parse_bytes("7B", "x") == Bytes(7));
    CHECK(parse_bytes("3kB", "x") == Bytes(3000));
    CHECK(parse_bytes("16GB", "x") == Bytes(16'000'000'000));
    CHECK(parse_bytes("16GiB", "x") == Bytes(17'179'869'184));  // 2^34
    CHECK(parse_bytes("1.5 MiB", "x") == Bytes(1'572'864));     // 1.5 * 2^20
    CHECK(parse_bytes("2TB", "x") == Bytes(2'000'000'000'000));
  }

  TEST_CASE("a fraction of a byte is rounded down") {
    CHECK(parse_bytes("1.0009kB", "x") == Bytes(1000));
    CHECK(parse_bytes("0.9", "x") == Bytes(0));
  }

  TEST_CASE("what is no size is refused with the suffixes") {
    for (const std::string text : {"", "GiB", "16gb", "-1", "1e300", "nan", "1 GiB ", "1K"}) {
      CAPTURE(text);
      CHECK(error_text([&] { return parse_bytes(text, "--memory-limit"); }) ==
            "[usage] --memory-limit: \"" + text +
                "\" is not a size; write a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, "
                "TiB (powers of 1024)");
    }
  }

  TEST_CASE("times accept ns to h, a bare number is seconds") {
    CHECK(parse_seconds("2", "x") == Seconds(2));
    CHECK(parse_seconds("250ms", "x").count() == doctest::Approx(0.25));
    CHECK(parse_seconds("3us", "x").count() == doctest::Approx(3e-6));
    CHECK(parse_seconds("4ns", "x").count() == doctest::Approx(4e-9));
    CHECK(parse_seconds("1.5min", "x") == Seconds(90));
    CHECK(parse_seconds("1h", "x") == Seconds(3600));
    CHECK(error_text([] { return parse_seconds("5 parsecs", "--latency"); }) ==
          "[usage] --latency: \"5 parsecs\" is not a time; write a number with ns, us, ms, s, min or h");
  }

  TEST_CASE("bandwidths are bytes per second, bits only by name") {
    CHECK(parse_bandwidth("1e9", "x") == BytesPerSecond(1e9));
    CHECK(parse_bandwidth("10GB/s", "x") == BytesPerSecond(1e10));
    CHECK(parse_bandwidth("2GiB/s", "x") == BytesPerSecond(2147483648.0));
    CHECK(parse_bandwidth("100Gbit/s", "x") == BytesPerSecond(12.5e9));  // 100e9 / 8
    CHECK(parse_bandwidth("100Gb/s", "x") == BytesPerSecond(12.5e9));
    CHECK(parse_bandwidth("100 Gbps", "x") == BytesPerSecond(12.5e9));
    CHECK(parse_bandwidth("8Mbps", "x") == BytesPerSecond(1e6));
    CHECK(error_text([] { return parse_bandwidth("0", "--bandwidth"); }) ==
          "[usage] --bandwidth: \"0\" is not a bandwidth above 0; write a number with B/s, kB/s, MB/s, GB/s, "
          "TB/s, KiB/s, "
          "MiB/s, GiB/s, or, in bits, Mbit/s, Gbit/s (also Mb/s, Gb/s, Mbps, Gbps)");
  }

  TEST_CASE("people see three significant digits and the unit that fits") {
    CHECK(to_text(Seconds(0)) == "0 s");
    CHECK(to_text(Seconds(12.34e-3)) == "12.3 ms");
    CHECK(to_text(Seconds(4.56e-7)) == "456 ns");
    CHECK(to_text(Seconds(2)) == "2 s");
    CHECK(to_text(Seconds(5400)) == "90 min");
    CHECK(to_text(Bytes(1023)) == "1023 B");
    CHECK(to_text(Bytes(1536)) == "1.5 KiB");
    CHECK(to_text(Bytes(1406604574)) == "1.31 GiB");  // 1.31 * 2^30 = 1406611333
    CHECK(to_text(BytesPerSecond(2.5e9)) == "2.5 GB/s");
  }

  TEST_CASE("a value that rounds to a thousand takes the next unit") {
    CHECK(to_text(Seconds(0.9994)) == "999 ms");
    CHECK(to_text(Seconds(0.9996)) == "1 s");
    CHECK(to_text(Bytes(1023 * 1024)) == "0.999 MiB");  // 1023/1024
    CHECK(to_text(BytesPerSecond(2e15)) == "2000 TB/s");
  }

  TEST_CASE("bytes over a rate are seconds") {
    CHECK(Bytes(3'000'000) / BytesPerSecond(1.5e9) == Seconds(0.002));
    CHECK(Bytes(3) * 4 + Bytes(1) == Bytes(13));
  }
}

}  // namespace units_test
