#include <nlohmann/json.hpp>

#include "librun/infer/report.h"

#include "tests/support/doctest.h"
#include "tests/support/schema.h"

namespace pp::run::report_json_test {
namespace {

InferReport full_report() {
  InferReport report;
  report.context = {{"pp", "0.1"}};
  report.plan_hash = "sha256:00";
  report.settings = {{"data", std::string("prompts.txt")}, {"prompt_length", std::int64_t{16}}};
  report.seed = ~std::uint64_t{0};
  report.exit_reason = "completed";
  report.samples = 5;
  report.micro_batch = 4;
  report.passes = 2;
  report.elapsed = Seconds(1.5);
  report.per_s = 3.5;
  report.latency = {Seconds(0.25), Seconds(0.5), Seconds(0.75)};
  report.workers = {{WorkerId{0}, Seconds(0.5), 0.75, Bytes(4096)}, {WorkerId{1}, Seconds(1), 0.5, Bytes(8)}};
  report.op_times = {{plan::OpKind::forward, StageId{0}, 2, Seconds(0), Seconds(0.1)}};
  return report;
}

TEST_SUITE("librun/infer/report_json") {
  TEST_CASE("reports of outputs and of generations are valid by the schema, a handful of spoilt ones is not") {
    InferReport report = full_report();
    CHECK(pp::test::schema_error("inference", to_json(report)) == "");
    report.tokens = 80;
    const Json json = to_json(report);
    CHECK(json["tokens_per_s"] == 3.5);
    CHECK(pp::test::schema_error("inference", json) == "");
    const auto refused = [&](const char* pointer, const Json& value) {
      Json changed = json;
      changed[Json::json_pointer(pointer)] = value;
      return !pp::test::schema_error("inference", changed).empty();
    };
    CHECK(refused("/version", 2));
    CHECK(refused("/latency_s/p95", "slow"));
    CHECK(refused("/workers/0/idle_fraction", 1.25));
    CHECK(refused("/workers/1/bubble_fraction", 0.5));
    CHECK(refused("/forwards/0/count", 1.5));
    CHECK(refused("/seed", -1));
    CHECK(!refused("/seed", 0));
  }
}

}  // namespace
}  // namespace pp::run::report_json_test
