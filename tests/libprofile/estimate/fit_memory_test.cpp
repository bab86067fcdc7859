// Context and rounding found again from peaks that they make, by hand and within their limits.
#include "libprofile/estimate/fit_memory.h"

#include <vector>

#include "tests/support/doctest.h"

namespace fit_memory_test {

using namespace pp;
using namespace pp::profile;

namespace {

constexpr std::int64_t kMb = 1'000'000;

DeviceSpec device() {
  DeviceSpec device;
  device.memory = Bytes(80'000 * kMb);
  return device;
}

/// Runs that count so many megabytes, measured as `context` + `rounding` times as many.
std::vector<PeakRun> runs_of(const std::vector<std::int64_t>& counted, std::int64_t context, double rounding) {
  std::vector<PeakRun> runs;
  for (const std::int64_t megabytes : counted) {
    const double measured = static_cast<double>(context) + rounding * static_cast<double>(megabytes);
    runs.push_back({Bytes(megabytes * kMb), Bytes(static_cast<std::int64_t>(measured) * kMb)});
  }
  return runs;
}

}  // namespace

TEST_SUITE("libprofile/estimate/fit_memory") {
  TEST_CASE("context and rounding are found again") {
    // 600 + 1.25 * {1000, 2000, 4000, 8000, 16000}
    const MemoryFit fit = fit_memory(device(), runs_of({1000, 2000, 4000, 8000, 16000}, 600, 1.25), 1);
    CHECK(fit.context == Bytes(600 * kMb));
    CHECK(fit.rounding == 1.25);
    CHECK(fit.all.mean == doctest::Approx(0).epsilon(1e-9));
    CHECK(fit.other_half.mean < 1e-4);
    CHECK(fit.fitted_half.runs == 3);
    CHECK(fit.other_half.runs == 2);
    // Without context and rounding the smallest is predicted 1000 of 1850, the largest 16000 of 20600.
    CHECK(fit.before.mean > 1 - 16.0 / 20.6);
    CHECK(fit.before.signed_mean == doctest::Approx(-fit.before.mean));
  }

  TEST_CASE("relative errors count: by hand") {
    // 110, 110, 220, 220: the line through them is 1.1 x.
    const MemoryFit free = fit_memory(device(), runs_of({100, 100, 200, 200}, 0, 1.1), 1);
    CHECK(free.context == Bytes(0));
    CHECK(free.rounding == doctest::Approx(1.1));
    // Measured 130, 130, 180, 180 the line would be 80 + 0.5 x. On the limit 1: (c + 100) / 130 - 1 and (c +
    // 200) / 180 - 1, c (1/130^2 + 1/180^2) = 30/130^2 - 20/180^2, so c = (30 * 180^2 - 20 * 130^2) / (130^2 +
    // 180^2) = 634000 / 49300 = 12.86.
    const std::vector<PeakRun> flat{{Bytes(100 * kMb), Bytes(130 * kMb)},
                                    {Bytes(100 * kMb), Bytes(130 * kMb)},
                                    {Bytes(200 * kMb), Bytes(180 * kMb)},
                                    {Bytes(200 * kMb), Bytes(180 * kMb)}};
    const MemoryFit limited = fit_memory(device(), flat, 1);
    CHECK(limited.rounding == 1);
    CHECK(static_cast<double>(limited.context.value) == doctest::Approx(12.860e6).epsilon(1e-3));
  }

  TEST_CASE("tensors that already count for more than was measured leave nothing to add") {
    const MemoryFit fit = fit_memory(device(), runs_of({1000, 2000, 3000, 4000}, 0, 0.9), 1);
    CHECK(fit.context == Bytes(0));
    CHECK(fit.rounding == 1);
    CHECK(fit.all.signed_mean == doctest::Approx(1 / 0.9 - 1));
  }

  TEST_CASE("what cannot be told is said") {
    CHECK(*memory_unseen(device(), {}) == "no run says its peak");
    CHECK(*memory_unseen(device(), runs_of({1, 2, 3}, 1, 1)) ==
          "3 runs say their peaks, at least 4 are needed");
    CHECK(*memory_unseen(device(), runs_of({2, 2, 2, 2}, 1, 1)) == "all runs count the same bytes");
    CHECK(*memory_unseen(DeviceSpec{}, runs_of({1, 2, 3, 4}, 1, 1)) ==
          "the device to start from has no memory_bytes");
    CHECK_FALSE(memory_unseen(device(), runs_of({1, 2, 3, 4}, 1, 1)));
  }
}

}  // namespace fit_memory_test
