#include "libplan/search/pipedream_code.h"

#include <filesystem>
#include <iostream>

#include "libplan/interop/pipedream_text.h"
#include "libprofile/core/file.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/pipedream_code");

namespace pp::plan {
namespace {

PipedreamResult solve(const Profile& profile, int machines, double bandwidth,
                      MachinesRule rule = MachinesRule::exactly) {
  PipedreamOptions options;
  options.machines = machines;
  options.bandwidth = BytesPerSecond(bandwidth);
  options.rule = rule;
  return std::get<PipedreamResult>(plan_pipedream_code(profile, options));
}

std::optional<Profile> peer_profile(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(PP_SHARED_DATA) / "peer-profiles/pipedream" / (name + ".txt");
  if (std::filesystem::exists(path)) return import_pipedream(read_file(path), name, 1);
  std::cout << "SKIPPED: " << path.string() << " is not there\n";
  return std::nullopt;
}

}  // namespace

TEST_CASE("the released planner's values for real profiles") {
  struct Row {
    const char* profile;
    int machines;
    double bandwidth;
    double seconds;
    const char* replicas;
    double tolerance;
  };
  for (const Row& row :
       {Row{"vgg16", 4, 1e9, 0.205520896, "3-1", 1e-9}, Row{"vgg16", 4, 1.25e9, 0.176349165867, "3-1", 1e-9},
        Row{"vgg16", 8, 1e9, 0.103833170286, "7-1", 1e-9},
        Row{"vgg16", 16, 3.125e9, 0.045524807826, "15-1", 1e-9},
        Row{"alexnet", 4, 1e9, 0.034217141333, "3-1", 1e-9}, Row{"resnet50", 4, 1e9, 0.162880924, "2-2", 1e-9},
        Row{"gnmt", 4, 1.25e9, 0.02587, "1-1-1-1", 2e-4}}) {
    CAPTURE(row.profile);
    CAPTURE(row.machines);
    const std::optional<Profile> profile = peer_profile(row.profile);
    if (!profile) return;
    const PipedreamResult result = solve(*profile, row.machines, row.bandwidth);
    CHECK(result.objective.count() == doctest::Approx(row.seconds).epsilon(row.tolerance));
    CHECK(replicas_text(result) == row.replicas);
    CHECK(result.lower_bound <= result.objective);
    CHECK(solve(*profile, row.machines, row.bandwidth, MachinesRule::at_most).objective <= result.objective);
  }
}

TEST_CASE("exactly m machines can be worse than fewer, at most m never") {
  // One layer, C = 1 s, W/B = 2.5: (1 + 4(m-1)*2.5/m)/m is 1, 3, 2.56, 2.125 for m = 1..4.
  const Profile profile = test::make_profile({{{400, 600, 2'500'000'000, 0, 0, 0, 0}}, {}, {1}});
  const std::vector<double> expected{1, 3, 23.0 / 9, 2.125};
  for (int machines = 1; machines <= 4; ++machines) {
    CHECK(solve(profile, machines, 1e9).objective.count() ==
          doctest::Approx(expected[static_cast<std::size_t>(machines - 1)]).epsilon(1e-12));
    CHECK(solve(profile, machines, 1e9, MachinesRule::at_most).objective.count() ==
          doctest::Approx(1).epsilon(1e-12));
  }
}

TEST_CASE("the JSON object names objective, bound, replicas, cuts and the time of the search") {
  // Two layers of 3 and 1 ms, no weights: three machines for the first, one for the second.
  const Profile profile = test::make_profile({{{1, 2, 0, 0, 0, 0, 0}, {0.5, 0.5, 0, 0, 0, 0, 0}}, {}, {1}});
  const PipedreamResult result = solve(profile, 4, 1e9);
  const Json json = to_json(result, Seconds(0.25));
  CHECK(json["certificate"]["objective_s"].get<double>() == doctest::Approx(0.001).epsilon(1e-12));
  CHECK(json["certificate"]["lower_bound_s"] == json["certificate"]["objective_s"]);
  CHECK(json["replicas"] == "4");  // 4 ms over four machines: as fast, and first
  CHECK(json["cuts"].empty());
  CHECK(json["search"]["seconds"] == 0.25);
  CHECK(json["bandwidth_bytes_per_s"] == 1e9);
}

TEST_CASE("options out of range are refused, and the memory test can leave nothing") {
  const Profile profile = test::make_profile({{{1, 2, 8, 8, 8, 0, 0}, {1, 2, 8, 8, 8, 0, 0}}, {}, {1}});
  CHECK_THROWS_WITH(solve(profile, 0, 1e9), "machines = 0; give at least 1");
  CHECK_THROWS_WITH(solve(profile, 2, 0),
                    "the cost model pipedream-code needs a bandwidth above 0; add --bandwidth RATE");
  PipedreamOptions options{.machines = 2, .bandwidth = BytesPerSecond(1e9)};
  options.memory_limit = Bytes(1);
  // As released: the last stage, and so data parallelism, passes any limit.
  const auto result = plan_pipedream_code(profile, options);
  CHECK(replicas_text(std::get<PipedreamResult>(result)) == "2");
}

}  // namespace pp::plan

TEST_SUITE_END();
