#include "libplan/answer/remedies.h"

#include <random>

#include "libplan/request/request.h"
#include "libprofile/core/units.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/answer/typed_bytes");

namespace pp::plan {

TEST_CASE("a size is typed as it is where a unit has it, else rounded up to two decimals") {
  CHECK(typed_bytes(999) == "999");
  CHECK(typed_bytes(9'000'000) == "9MB");
  CHECK(typed_bytes(1'500'000'000) == "1.5GB");
  CHECK(typed_bytes(std::int64_t{3} << 29) == "1.5GiB");
  // 13178626048 are 12.2735 GiB.
  CHECK(typed_bytes(13'178'626'048) == "12.28GiB");
}

TEST_CASE("a device of so many bytes, typed and read again, has the limit usable, and hardly more") {
  std::mt19937_64 random(7);
  PlanRequest request;
  for (int i = 0; i < 1000; ++i) {  // below a PiB, where shares of bytes are exact
    const std::int64_t limit = static_cast<std::int64_t>(random() >> (14 + random() % 28)) + 1;
    const std::string typed = typed_bytes(device_bytes(limit, request));
    CAPTURE(typed);
    Device device;
    device.memory = parse_bytes(typed, "--memory");
    const std::int64_t usable = usable_bytes(device, request);
    CHECK(usable >= limit);
    CHECK(static_cast<double>(usable) <= 1.011 * static_cast<double>(limit) + 2);
  }
}

TEST_CASE("a limit of one's own has no reserve") {
  PlanRequest request;
  CHECK(device_bytes(950, request) == 1000);
  request.memory_limit = Bytes(1);
  CHECK(device_bytes(950, request) == 950);
}

}  // namespace pp::plan

TEST_SUITE_END();
