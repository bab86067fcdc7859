// pp-plan study: its tables, JSON, CSV; what it refuses.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace study_test {
namespace {

using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");
const std::string kReport = pp::test::repository("configs/study/vgg16-report.json");

struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  Outcome study(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "study");
    return pp::test::run_checked(kPlan, arguments, path());
  }
};

void refused(const Outcome& outcome, std::string_view message) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find(message) != std::string::npos);
}

}  // namespace

TEST_SUITE("apps/study") {
  TEST_CASE("the VGG16 report's table, with what it prints beside what is corrected") {
    const Outcome outcome = Folder().study({kReport});
    REQUIRE(outcome.code == 0);
    CHECK(outcome.err.empty());
    const std::string with_communication =
        "table 4.3, with communication\n"
        " M    S0 ms    S1 ms    S2 ms    S3 ms  time ms  serial ms  efficiency  printed\n"
        "--  -------  -------  -------  -------  -------  ---------  ----------  ------------------\n"
        " 1  180.168  198.404  178.811  147.011  704.394    704.394     88.76 %  88.75 %, cut off\n"
        " 2   97.133   99.567   87.888   67.232  451.387    703.640     88.34 %  90.55 %, corrected\n"
        " 4   43.580   48.741   42.892   34.964  316.400    680.708     87.29 %  87.07 %, corrected\n"
        " 8   21.956   24.732   22.148   19.836  261.796    709.376     89.63 %  89.63 %\n"
        "16   10.775   14.152   16.075   15.353  297.480    901.680     87.64 %  87.64 %\n"
        "32    5.426    7.183    7.180    9.636  328.141    941.600     76.34 %  76.34 %\n"
        "mean efficiency 86.33 %, printed 86.66 %, corrected\n"
        "best M = 8: 261.796 ms; time falls until there, then rises\n";
    CAPTURE(outcome.out);
    CHECK(outcome.out.find(with_communication) != std::string::npos);
  }

  TEST_CASE("a profile, from the command line to JSON") {
    // Six layers of 2 ms for 16 samples, times in proportion: S = 6, 3, 1.5 ms on each of two stages, so that
    // time(M) = 12, 3 (2 + 1), 1.5 (2 + 3).
    const Outcome outcome = Folder().study(
        {"profile.json", "--mini-batch", "16", "--stages", "2", "--micro-batches", "1,2,4", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::Json json = pp::parse_json(outcome.out);
    CHECK(json.at("name") == "sample, stages 3|3");
    REQUIRE(json.at("tables").size() == 1);
    const pp::Json& table = json.at("tables")[0];
    const std::vector<double> times{0.012, 0.009, 0.0075};
    REQUIRE(table.at("rows").size() == times.size());
    for (std::size_t i = 0; i < times.size(); ++i)
      CHECK(table.at("rows")[i].at("time_s").get<double>() == doctest::Approx(times[i]));
    CHECK(table.at("best_micro_batches") == 4);
    CHECK(table.at("course") == "falls");
  }

  TEST_CASE("cuts, a machine and CSV") {
    const Folder folder;
    const Outcome outcome = folder.study({"profile.json", "--mini-batch", "16", "--cuts", "2,4", "--devices",
                                          "3", "--bandwidth", "1GB/s", "--csv", "study.csv"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.starts_with("sample, stages 2|2|2: forwards of a mini-batch of 16 samples\n"));
    CHECK(outcome.out.find("\nwith communication\n") != std::string::npos);
    const std::string csv = pp::read_file(folder.path() / "study.csv");
    CHECK(std::ranges::count(csv, '\n') == 1 + 2 * 5);
    CHECK(folder
              .study({"profile.json", "--mini-batch", "16", "--cuts", "2,4", "--devices", "3", "--bandwidth",
                      "1GB/s", "--csv", "-"})
              .out == csv);
  }

  TEST_CASE("what is wrong is named") {
    const Folder folder;
    refused(folder.study({"profile.json", "--mini-batch", "16"}), "add --stages K or --cuts K,K");
    refused(folder.study({"profile.json", "--stages", "2"}), "add --mini-batch N");
    refused(folder.study({"profile.json", "--mini-batch", "16", "--stages", "2", "--micro-batches", "1,x"}),
            "--micro-batches: \"x\" is not a whole number");
    refused(folder.study({"profile.json", "--mini-batch", "16", "--stages", "2", "--bandwidth", "1GB/s"}),
            "no machine given");
    refused(folder.study({kReport, "--stages", "2"}),
            "vgg16-report.json has the times of the stages; leave --stages out, or give a profile");
    refused(folder.study({kReport, "--devices", "2"}), "leave the machine out, or give a profile");
    pp::write_file(folder.path() / "plan.json", R"({"format": "pp.plan", "version": 1})");
    refused(folder.study({"plan.json"}),
            "plan.json: /format: is \"pp.plan\"; a study reads a \"pp.profile\" or a \"pp.stage-times\"");
  }
}

}  // namespace study_test
