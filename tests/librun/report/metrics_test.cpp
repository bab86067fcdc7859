#include "librun/report/metrics.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/doctest.h"

namespace metrics_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/report/metrics") {
  TEST_CASE("a run, a step and an epoch are a line each, with the keys that are documented") {
    CHECK(metrics_line(RunStart{"sha256:00", {{"data", std::string("synthetic")}}, 7, 30, 40}) ==
          R"({"format":"pp.metrics","version":1,"plan_hash":"sha256:00","seed":7,"first_step":30,"steps":40,)"
          R"("settings":{"data":"synthetic"}})"
          "\n");
    Progress step{.epoch = 1,
                  .step = 3,
                  .steps = 40,
                  .loss = 0.5,
                  .samples_per_s = 64,
                  .learning_rate = 0.25,
                  .samples = 8,
                  .elapsed = Seconds(1.5),
                  .bubble_fraction = 0.125,
                  .peak = Bytes(1024)};
    const std::string line =
        R"({"step":3,"epoch":1,"loss":0.5,"learning_rate":0.25,"samples":8,"samples_per_s":64.0,)"
        R"("elapsed_s":1.5,"bubble_fraction":0.125,"peak_bytes":1024)";
    CHECK(metrics_line(step) == line + "}\n");
    step.gradient_norm = 2.5;
    CHECK(metrics_line(step) == line + ",\"gradient_norm\":2.5}\n");
    const EpochReport epoch{.epoch = 1,
                            .train_loss = 0.75,
                            .test_loss = 0.5,
                            .test_accuracy = 0.875,
                            .last_step = 20,
                            .elapsed = Seconds(3),
                            .evaluation = Seconds(0.25)};
    CHECK(metrics_line(epoch) ==
          R"({"evaluation":1,"step":20,"elapsed_s":3.25,"evaluation_s":0.25,"train_loss":0.75,)"
          R"("test_loss":0.5,"test_accuracy":0.875})"
          "\n");
    CHECK(
        metrics_line(EvaluationReport{1, 20, 0.5, 0.875, Seconds(3), Seconds(0.25)}) ==
        R"({"evaluation":1,"step":20,"elapsed_s":3.25,"evaluation_s":0.25,"test_loss":0.5,"test_accuracy":0.875})"
        "\n");
    CHECK(metrics_line(EpochReport{0, 1, {}, {}, 0, 2}) ==
          R"({"evaluation":0,"step":2,"elapsed_s":0.0,"evaluation_s":0.0,"train_loss":1.0})"
          "\n");
  }

  TEST_CASE(
      "a norm beyond all numbers is left out: JSON has none such, and the run decides what becomes of it") {
    Progress step{.step = 1};
    step.gradient_norm = std::numeric_limits<double>::infinity();
    CHECK_FALSE(parse_json(metrics_line(step)).contains("gradient_norm"));
  }
}

}  // namespace metrics_test
