#include "libplan/draw/chrome_trace.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::straight;

TEST_SUITE("libplan/draw/chrome trace") {
  TEST_CASE("the trace of one step, byte for byte") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(7), Bytes(8)}};
    // In milliseconds: F 1, B 2, no link costs: worker 0 F 0-1, B 4-6; worker 1 F 1-2, B 2-4.
    for (StageCosts& stage : input.stages) stage = test::costs(0.001, 0.002);
    CHECK(chrome_trace(simulate(input)) ==
          R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"workers"}},
{"ph":"M","pid":0,"tid":0,"name":"process_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"worker 0"}},
{"ph":"M","pid":0,"tid":0,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"worker 1"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"links"}},
{"ph":"M","pid":1,"tid":0,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":0,"name":"thread_name","args":{"name":"worker 0 to 1"}},
{"ph":"M","pid":1,"tid":0,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"worker 1 to 0"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":1}},
{"ph":"X","pid":0,"tid":0,"ts":0,"dur":1000,"name":"F0.0","cat":"forward"},
{"ph":"X","pid":0,"tid":1,"ts":1000,"dur":1000,"name":"F1.0","cat":"forward"},
{"ph":"X","pid":0,"tid":1,"ts":2000,"dur":2000,"name":"B1.0","cat":"backward"},
{"ph":"X","pid":0,"tid":0,"ts":4000,"dur":2000,"name":"B0.0","cat":"backward"},
{"ph":"X","pid":0,"tid":1,"ts":4000,"dur":0,"name":"U1","cat":"update"},
{"ph":"X","pid":0,"tid":0,"ts":6000,"dur":0,"name":"U0","cat":"update"},
{"ph":"X","pid":1,"tid":0,"ts":1000,"dur":0,"name":"F0.0","cat":"activation","args":{"bytes":7}},
{"ph":"X","pid":1,"tid":1,"ts":4000,"dur":0,"name":"B1.0","cat":"gradient","args":{"bytes":8}}
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

  TEST_CASE("touching operations touch in the trace, to the nanosecond") {
    SimulationInput input = equal_stages(straight("1f1b", 1, 50));
    for (StageCosts& stage : input.stages) stage = test::costs(0.0123456789, 0.0234567891);
    const auto trace = nlohmann::json::parse(chrome_trace(simulate(input)));
    double end = 0;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      CHECK(event.at("ts").get<double>() == doctest::Approx(end).epsilon(1e-12));
      end = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
  }

  TEST_CASE("a message that takes time has an arrow to the operation that waits for it") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(7), Bytes(0)}};
    test::link_all(input, {BytesPerSecond(1), Seconds(0)});
    // F0.0 0-1, its 7 bytes 1-8, F1.0 8-9, B1.0 9-11; the gradient has no bytes and takes no time.
    const auto trace = nlohmann::json::parse(chrome_trace(simulate(input)));
    std::vector<nlohmann::json> arrows;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "s" || event.at("ph") == "f") arrows.push_back(event);
    }
    REQUIRE(arrows.size() == 2);
    CHECK(arrows[0] == nlohmann::json::parse(
                           R"({"ph":"s","pid":1,"tid":0,"ts":1000000,"name":"needs","cat":"message","id":0})"));
    CHECK(arrows[1] ==
          nlohmann::json::parse(
              R"({"ph":"f","bp":"e","pid":0,"tid":1,"ts":8000000,"name":"needs","cat":"message","id":0})"));
  }

  TEST_CASE("bytes held are a counter per worker") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    for (StageCosts& stage : input.stages) stage.saved = Bytes(10);
    const SimulationResult result = simulate(input);
    const auto trace = nlohmann::json::parse(chrome_trace(result, memory_curves(input, result)));
    std::string text;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "C") {
        text += event.at("name").get<std::string>() + " " + event.at("ts").dump() + " " +
                event.at("args").at("bytes").dump() + ", ";
      }
    }
    // Worker 0 holds from 0 to 6 s, worker 1 from 1 to 4 s; both begin with nothing.
    CHECK(text ==
          "worker 0 0 0, worker 0 0 10, worker 0 6000000 0, worker 1 0 0, worker 1 1000000 10, worker 1 "
          "4000000 0, ");
  }
}

}  // namespace
}  // namespace pp::plan
