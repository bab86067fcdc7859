#include "libprofile/device/machine.h"

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/device/machine") {
  TEST_CASE("memory and processor are known") {
    CHECK(machine_memory() > Bytes(std::int64_t{64} << 20));
    CHECK_FALSE(cpu_name().empty());
  }
}

}  // namespace pp::profile
