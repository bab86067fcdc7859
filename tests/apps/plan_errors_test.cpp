// What pp-plan refuses: exit 2 and a message that names the thing, the value, the limit and the remedy.
#include <filesystem>

#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_errors_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

struct Folder : TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  Outcome plan(std::vector<std::string> arguments) const {
    return pp::test::run_checked(kPlan, arguments, path());
  }
  /// Two devices and a mini-batch of 64 with these arguments behind.
  Outcome request(std::vector<std::string> more) const {
    std::vector<std::string> arguments{"profile.json", "--devices",    "2", "--bandwidth",
                                       "1e9",          "--mini-batch", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return plan(arguments);
  }
};

void refused(const Outcome& outcome, std::string_view message) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find(message) != std::string::npos);
}

}  // namespace

TEST_SUITE("apps/plan_errors") {
  TEST_CASE("more stages than layers") {
    refused(Folder().request({"--stages", "9"}), "stages = 9 exceeds the number of layers, 6");
  }

  TEST_CASE("an unknown schedule lists the known ones") {
    const Outcome outcome = Folder().request({"--schedule", "2f2b"});
    refused(outcome, "2f2b");
    CHECK(outcome.err.find("1f1b") != std::string::npos);
    refused(Folder().request({"--schedule", "shat"}),
            "schedule shat: SHAT is left out: its update rule is not published");
  }

  TEST_CASE("no machine") {
    refused(Folder().plan({"profile.json", "--mini-batch", "64"}),
            "no machine given; add --cluster FILE, --devices N --bandwidth RATE, or --levels N@RATE,N@RATE");
  }

  TEST_CASE("several devices without a bandwidth") {
    refused(Folder().plan({"profile.json", "--mini-batch", "64", "--devices", "2"}),
            "--devices 2 needs --bandwidth");
  }

  TEST_CASE("a unit that does not exist") {
    refused(Folder().plan({"profile.json", "--mini-batch", "64", "--devices", "2", "--bandwidth", "10parsec"}),
            "--bandwidth");
  }

  TEST_CASE("more micro-batches than samples") {
    refused(Folder().request({"--micro-batches", "65"}),
            "micro_batches = 65 exceeds the mini-batch of 64 samples");
  }

  TEST_CASE("a file that is missing") {
    refused(Folder().plan({"nothing.json", "--mini-batch", "64", "--devices", "1"}),
            "nothing.json: cannot be read");
  }

  TEST_CASE("malformed JSON names the file and the place") {
    const Folder folder;
    pp::write_file(folder.path() / "broken.json", "{ \"format\": \"pp.profile\", ");
    const Outcome outcome = folder.plan({"broken.json", "--mini-batch", "64", "--devices", "1"});
    refused(outcome, "broken.json: ");
    CHECK(outcome.err.find("line 1") != std::string::npos);
  }

  TEST_CASE("another document than a profile names both formats") {
    const Folder folder;
    pp::write_file(folder.path() / "model.json", "{ \"format\": \"pp.model\", \"version\": 1 }");
    const Outcome outcome = folder.plan({"model.json", "--mini-batch", "64", "--devices", "1"});
    refused(outcome, "model.json: ");
    CHECK(outcome.err.find("pp.model") != std::string::npos);
    CHECK(outcome.err.find("pp.profile") != std::string::npos);
  }

  TEST_CASE("an unknown option") { refused(Folder().request({"--stagez", "2"}), "--stagez"); }

  TEST_CASE("an output folder that does not exist is found before the search") {
    refused(Folder().request({"-o", "missing/plan.json"}), "missing/plan.json: cannot be written");
  }

  TEST_CASE("a plan of another profile") {
    const Folder folder;
    REQUIRE(folder.request({"-o", "plan.json"}).code == 0);
    pp::test::write_profile(folder.path(), pp::test::sample_profile(std::vector<double>(5, 2.0)));
    refused(folder.plan({"check", "plan.json", "--profile", "profile.json"}), "plan.json: ");
  }

  TEST_CASE("an edited program that deadlocks names every worker's operation") {
    const Folder folder;
    REQUIRE(folder.request({"-o", "plan.json", "--stages", "2", "--schedule", "gpipe", "--micro-batches", "4"})
                .code == 0);
    std::string text = pp::read_file(folder.path() / "plan.json");
    const std::string program = "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3 U0";
    REQUIRE(text.find(program) != std::string::npos);
    text.replace(text.find(program), program.size(), "F0.0 B0.0 F0.1 F0.2 F0.3 B0.1 B0.2 B0.3 U0");
    const std::string last = "F1.0 F1.1 F1.2 F1.3 B1.0 B1.1 B1.2 B1.3 U1";
    REQUIRE(text.find(last) != std::string::npos);
    pp::write_file(folder.path() / "plan.json", text);
    const Outcome outcome = folder.plan({"check", "plan.json"});
    refused(outcome, "deadlock");
    CHECK(outcome.err.find("worker 0: next B0.0 needs B1.0 (worker 1)") != std::string::npos);
    CHECK(outcome.err.find("worker 1: next F1.1 needs F0.1 (worker 0)") != std::string::npos);
  }
}

}  // namespace plan_errors_test
