#include "libplan/simulate/chrome_trace.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::straight;

TEST_SUITE("libplan/simulate/chrome trace") {
  TEST_CASE("the trace of one step, byte for byte") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(7), Bytes(8)}};
    // In milliseconds: F 1, B 2, no link costs: worker 0 F 0-1, B 4-6; worker 1 F 1-2, B 2-4.
    for (StageCosts& stage : input.stages) stage = test::costs(0.001, 0.002);
    CHECK(chrome_trace(simulate(input)) ==
          R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"workers"}},
{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"worker 0"}},
{"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"worker 1"}},
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"links"}},
{"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"worker 0 to 1"}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"worker 1 to 0"}},
{"ph":"X","name":"F0.0","cat":"forward","pid":0,"tid":0,"ts":0.0,"dur":1000.0},
{"ph":"X","name":"F1.0","cat":"forward","pid":0,"tid":1,"ts":1000.0,"dur":1000.0},
{"ph":"X","name":"B1.0","cat":"backward","pid":0,"tid":1,"ts":2000.0,"dur":2000.0},
{"ph":"X","name":"B0.0","cat":"backward","pid":0,"tid":0,"ts":4000.0,"dur":2000.0},
{"ph":"X","name":"U1","cat":"update","pid":0,"tid":1,"ts":4000.0,"dur":0.0},
{"ph":"X","name":"U0","cat":"update","pid":0,"tid":0,"ts":6000.0,"dur":0.0},
{"ph":"X","name":"F0.0","cat":"activation","pid":1,"tid":0,"ts":1000.0,"dur":0.0,"args":{"bytes":7}},
{"ph":"X","name":"B1.0","cat":"gradient","pid":1,"tid":1,"ts":4000.0,"dur":0.0,"args":{"bytes":8}}
]}
)");
  }

  TEST_CASE("a trace of every kind of operation is JSON, with whole nanoseconds") {
    SimulationInput input =
        equal_stages(test::written({"F0.0 R0.0 I0.0 W0.0 AR0 U0", "F0.1 B0.1 AR0 U0"}, {{0, 1}}, 2));
    for (StageCosts& stage : input.stages) stage = test::costs(0.1, 0.2);
    const auto trace = nlohmann::json::parse(chrome_trace(simulate(input)));
    std::vector<std::string> kinds;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X" && event.at("tid") == 0) kinds.push_back(event.at("cat"));
      if (event.at("name") == "W0.0")
        CHECK(event.at("ts") == 300000.0);  // 0.1 + 0.1 + 0.1 s is not 0.3 s in binary
    }
    CHECK(kinds == std::vector<std::string>{"forward", "recompute", "input gradient", "weight gradient",
                                            "all-reduce", "update"});
  }
}

}  // namespace
}  // namespace pp::plan
