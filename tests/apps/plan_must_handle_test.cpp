// Requests at the edges of what can be asked, as a user meets them: each has a plan, and what is remarkable
// about it is said.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_must_handle_test {
namespace {

using pp::Json;
using pp::test::Outcome;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Layers of these forward times at 16 samples, ms; the backward takes twice as long.
struct Folder : pp::test::TemporaryFolder {
  explicit Folder(const std::vector<double>& forward_ms) {
    pp::test::write_profile(path(), pp::test::sample_profile(forward_ms));
  }
  Outcome run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"profile.json", "--bandwidth", "1e9"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  Json plan(std::vector<std::string> more) const {
    more.emplace_back("--json");
    const Outcome outcome = run(more);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return pp::parse_json(outcome.out);
  }
};

}  // namespace

TEST_SUITE("apps/plan_must_handle") {
  TEST_CASE("one layer, one device, one micro-batch: forward and backward") {
    const Json plan = Folder({2}).plan({"--devices", "1", "--mini-batch", "16", "--micro-batches", "1"});
    CHECK(plan["training"]["micro_batches"] == 1);
    CHECK(plan["predicted"]["step_s"].get<double>() == exactly(0.006));
    CHECK(plan["certificate"]["gap"].get<double>() == exactly(0));
  }

  TEST_CASE("one layer on several devices is replicated") {
    const Json plan = Folder({2}).plan({"--devices", "3", "--mini-batch", "48"});
    CHECK(plan["stages"].size() == 1);
    CHECK(plan["stages"][0]["workers"].size() == 3);
  }

  TEST_CASE("devices that no worker needs are listed") {
    // Two micro-batches: a stage has at most two replicas, and a pipeline is no faster than both on their own.
    const Outcome outcome =
        Folder({2, 2}).run({"--devices", "8", "--mini-batch", "32", "--micro-batches", "2"});
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.find("\nunused devices: cpu:2 .. cpu:7\n") != std::string::npos);
    const Outcome one = Folder({2, 2}).run({"--devices", "3", "--mini-batch", "32", "--micro-batches", "2"});
    CHECK(one.out.find("\nunused devices: cpu:2\n") != std::string::npos);
    const Outcome none = Folder({2, 2}).run({"--devices", "2", "--mini-batch", "32", "--micro-batches", "2"});
    CHECK(none.out.find("unused") == std::string::npos);
  }

  TEST_CASE("fewer micro-batches than stages: a plan, and a warning with its bubble") {
    const Folder folder({2, 2, 2, 2});
    const std::vector<std::string> request{"--devices", "4", "--mini-batch", "16",   "--micro-batches", "1",
                                           "--stages",  "4", "--schedule",   "gpipe"};
    // One after the other: each worker is idle for three quarters of the step, but for messages.
    const Outcome outcome = folder.run(request);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.err ==
          "pp-plan: warning: 1 micro-batch cannot keep 4 stages busy: the bubble is 75.0 %; take at least 4, "
          "or fewer stages\n");
    std::vector<std::string> enough = request;
    enough[5] = "4";
    CHECK(folder.run(enough).err.empty());
  }

  TEST_CASE("what a profile only estimates, and where its sums are off, is one line each") {
    pp::Profile profile = pp::test::sample_profile(std::vector<double>{2, 2});
    profile.estimated = {"input_gradient_s", "saved_bytes", "batch_size"};
    // 2 layers of 2 + 4 ms per 16 samples: 3 ms and 6 ms at 4 and 8; the whole model takes half of that.
    for (const double size : {4.0, 8.0}) {
      const auto whole = [&](double ms) {
        return pp::TimeStat{pp::Seconds(1e-3 * ms), pp::Seconds(1e-3 * ms), pp::Seconds(1e-3 * ms), 10};
      };
      profile.whole_model.push_back({static_cast<std::int64_t>(size), whole(size / 8), whole(size / 4), {}});
    }
    const Folder folder({2});
    pp::test::write_profile(folder.path(), profile);
    const Outcome outcome = folder.run({"--devices", "1", "--mini-batch", "16"});
    CHECK(outcome.code == 0);
    CHECK(outcome.err ==
          "pp-plan: warning: the profile only estimates input_gradient_s, saved_bytes and batch_size; measure "
          "with pp-profile run for a plan to rely on\n"
          "pp-plan: warning: the layers of the profile add up to 2.00 at micro-batch size 4 and 2.00 at "
          "micro-batch size 8 of the whole model; profile again on a quieter machine\n");
  }

  TEST_CASE("equal layers, layers without time, and 1e-9 s beside 10 s have plans that are proven") {
    for (const std::vector<double>& times :
         {std::vector<double>(6, 2.0), std::vector<double>{0, 2, 0, 0, 2, 0}, std::vector<double>{1e-6, 1e4}}) {
      const Json plan = Folder(times).plan({"--devices", "2", "--mini-batch", "32", "--micro-batches", "2"});
      CHECK(plan["certificate"]["gap"].get<double>() < 0.01);
    }
  }

  TEST_CASE("device counts that do not divide, and more devices than layers") {
    const Folder folder({1, 3, 2});
    double before = std::numeric_limits<double>::infinity();
    for (const char* devices : {"3", "7", "16"}) {
      CAPTURE(devices);
      const Json plan = folder.plan({"--devices", devices, "--mini-batch", "64", "--micro-batches", "8"});
      CHECK(plan["predicted"]["step_s"].get<double>() <= before * (1 + 1e-9));
      before = plan["predicted"]["step_s"].get<double>();
    }
  }

  TEST_CASE("options of the search go together in pairs") {
    const Folder folder(std::vector<double>(6, 2.0));
    const std::vector<std::vector<std::string>> options{
        {"--memory-limit", "1MiB"}, {"--max-stages", "2"}, {"--schedule", "gpipe"},    {"--window", "wide"},
        {"--latency", "5us"},       {"--allow-async"},     {"--placement", "scatter"}, {"--tied", "copies"},
        {"--optimizer", "adamw"},   {"--top", "0"},        {"--threads", "1"}};
    for (std::size_t a = 0; a < options.size(); ++a) {
      for (std::size_t b = a + 1; b < options.size(); ++b) {
        std::vector<std::string> request{"--devices", "3", "--mini-batch", "16", "--micro-batches", "4"};
        for (const std::size_t one : {a, b})
          request.insert(request.end(), options[one].begin(), options[one].end());
        const Outcome outcome = folder.run(request);
        CAPTURE(options[a].front());
        CAPTURE(options[b].front());
        CAPTURE(outcome.err);
        CHECK(outcome.code == 0);
      }
    }
  }
}

}  // namespace plan_must_handle_test
