// The golden values that are shared by all who build schedules (shared/data/schedules/golden.json), for the
// groups that the generators here can answer. The project's own cases derive the same figures by hand; these
// run where the file is.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using nlohmann::json;
using test::equal_stages;
using test::program_set;

/// The entries of one group. Without the file the case is skipped.
std::vector<json> golden(const std::string& group) {
  const std::filesystem::path path = std::filesystem::path(PP_SHARED_DATA) / "schedules/golden.json";
  std::ifstream file(path);
  std::vector<json> entries;
  if (!file) {
    std::cout << "SKIPPED: no golden.json\n";
    return entries;
  }
  const json document = json::parse(file);
  for (const json& entry : document.at("entries")) {
    if (entry.at("group") == group) entries.push_back(entry);
  }
  REQUIRE_FALSE(entries.empty());
  return entries;
}

/// DAPPLE's lists are 1f1b with two of its windows.
ScheduleRequest request_of(const json& inputs) {
  const std::string name = inputs.at("schedule");
  ScheduleRequest request{name, {}, 1, WindowRule::published, {}};
  if (name == "dapple-pa" || name == "dapple-pb") request.name = "1f1b";
  if (name == "dapple-pb") request.window = WindowRule::wide;
  if (inputs.contains("replicas")) {
    request.replicas = inputs.at("replicas").get<std::vector<int>>();
  } else {
    request.replicas.assign(inputs.at("workers").get<std::size_t>(), 1);
    request.micro_batches = inputs.at("micro_batches");
  }
  return request;
}

/// Whether a generator of ours makes these lists.
bool known(const json& inputs) {
  const std::string name = inputs.at("schedule");
  return find_schedule(name) != nullptr || name.starts_with("dapple");
}

SimulationInput unit_costs(const json& inputs, ProgramSet set) {
  const int chunks = inputs.value("chunks_per_worker", 1);
  SimulationInput input = equal_stages(std::move(set), chunks);
  for (StageCosts& stage : input.stages) {
    stage.forward = Seconds(inputs.at("t_f").get<double>() / chunks);
    stage.input_gradient = Seconds(inputs.at("t_i").get<double>() / chunks);
    stage.weight_gradient = Seconds(inputs.at("t_w").get<double>() / chunks);
    stage.backward = stage.input_gradient + stage.weight_gradient;
  }
  test::link_all(input, {BytesPerSecond(0), Seconds(inputs.at("latency").get<double>())});
  return input;
}

void check_timing(const json& entry, const SimulationInput& input) {
  const json& expected = entry.at("expected");
  const SimulationResult result = simulate(input);
  CHECK(result.makespan.count() == doctest::Approx(expected.at("makespan").get<double>()).epsilon(1e-9));
  CHECK(result.bubble_fraction == doctest::Approx(expected.at("bubble_fraction").get<double>()).epsilon(1e-9));
  for (std::size_t w = 0; w < input.programs.workers.size(); ++w) {
    CHECK(peak_in_flight(input.programs.workers[w], entry.at("inputs").at("chunks_per_worker")) ==
          expected.at("peak_in_flight").at(w).get<double>());
  }
}

/// The golden lists leave AR and U out.
std::string without_updates(const Program& program) {
  Program rest;
  for (const Op& op : program) {
    if (has_micro_batch(op.kind)) rest.push_back(op);
  }
  return to_text(rest);
}

TEST_SUITE("libplan/schedule/golden") {
  TEST_CASE("the generators make the golden lists") {
    int checked = 0;
    const std::vector<json> entries = golden("program");
    for (const json& entry : entries) {
      const json& inputs = entry.at("inputs");
      if (!known(inputs)) continue;
      INFO(entry.at("name").get<std::string>());
      const ProgramSet set = program_set(request_of(inputs), inputs.value("mini_batches", 0));
      REQUIRE(set.workers.size() == entry.at("expected").at("programs").size());
      for (std::size_t w = 0; w < set.workers.size(); ++w) {
        CHECK(without_updates(set.workers[w]) == entry.at("expected").at("programs").at(w).get<std::string>());
      }
      if (entry.at("expected").contains("versions")) {
        SimulationInput input = equal_stages(set);
        for (StageCosts& stage : input.stages) stage.weights = Bytes(1);
        const auto memory = simulate(input).memory;
        for (std::size_t s = 0; s < memory.size(); ++s) {
          CHECK(memory[s].versions.value + 1 == entry.at("expected").at("versions").at(s).get<int>());
        }
      }
      ++checked;
    }
    // 1f1b, DAPPLE PB, PipeDream 1-1-1-1 and 2-1.
    CHECK(checked == (entries.empty() ? 0 : 4));
  }

  TEST_CASE("gpipe and 1f1b take the golden times, with the golden bubbles and peaks") {
    for (const json& entry : golden("timing")) {
      if (!known(entry.at("inputs"))) continue;
      INFO(entry.at("name").get<std::string>());
      check_timing(entry, unit_costs(entry.at("inputs"), program_set(request_of(entry.at("inputs")))));
    }
  }

  TEST_CASE("golden lists of schedules without a generator are valid and take their golden times") {
    std::map<std::string, json> timing;
    for (const json& entry : golden("timing")) timing[entry.at("name")] = entry;
    for (const json& entry : golden("program")) {
      const json& inputs = entry.at("inputs");
      if (known(inputs)) continue;
      INFO(entry.at("name").get<std::string>());
      const int workers = inputs.at("workers");
      const int chunks = inputs.at("chunks_per_worker");
      ProgramSet set;
      set.micro_batches = inputs.at("micro_batches");
      // V placement: the second chunk runs back over the workers.
      for (int s = 0; s < workers * chunks; ++s)
        set.stage_workers.push_back({WorkerId{s < workers ? s : 2 * workers - 1 - s}});
      for (const json& text : entry.at("expected").at("programs")) {
        set.workers.push_back(parse_program(text.get<std::string>()));
        const int w = static_cast<int>(set.workers.size()) - 1;
        set.workers.back().push_back({OpKind::update, StageId{w}, 0});
        if (chunks == 2) set.workers.back().push_back({OpKind::update, StageId{2 * workers - 1 - w}, 0});
      }
      CHECK_NOTHROW(validate(set));
      const std::string key = inputs.at("schedule").get<std::string>() + " K" + std::to_string(workers) + " M" +
                              std::to_string(set.micro_batches);
      if (timing.contains(key)) check_timing(timing[key], unit_costs(timing[key].at("inputs"), set));
    }
  }

  TEST_CASE("with latency DAPPLE's PA and PB take the golden times") {
    for (const json& entry : golden("latency")) {
      INFO(entry.at("name").get<std::string>());
      const SimulationInput input = unit_costs(entry.at("inputs"), program_set(request_of(entry.at("inputs"))));
      CHECK(test::makespan(input) ==
            doctest::Approx(entry.at("expected").at("makespan").get<double>()).epsilon(1e-9));
    }
  }

  TEST_CASE("a forward runs on the golden version of its weights") {
    for (const json& entry : golden("weight_versions")) {
      INFO(entry.at("name").get<std::string>());
      const int mini_batch = entry.at("inputs").at("mini_batch");
      const ProgramSet set = program_set(request_of(entry.at("inputs")), 12);
      for (std::size_t s = 0; s < set.workers.size(); ++s) {
        int version = 0;
        for (const Op& op : set.workers[s]) {
          if (op.kind == OpKind::update) ++version;
          if (op == Op{OpKind::forward, StageId{static_cast<int>(s)}, mini_batch}) break;
        }
        CHECK(version == entry.at("expected").at("version").at(s).get<int>());
      }
    }
  }

  TEST_CASE("published windows have the golden warm-up and steady period") {
    for (const json& entry : golden("warm_up")) {
      INFO(entry.at("name").get<std::string>());
      const json& inputs = entry.at("inputs");
      const json& expected = entry.at("expected");
      const ScheduleRequest request = request_of(inputs);
      std::vector<int> warm_up = windows(WindowRule::published, request.replicas);
      CHECK(warm_up.front() == expected.at("noam").get<int>());
      for (int& window : warm_up) --window;
      CHECK(warm_up == expected.at("warm_up").get<std::vector<int>>());

      SimulationInput input = equal_stages(program_set(request, inputs.at("mini_batches")));
      for (std::size_t s = 0; s < input.stages.size(); ++s) {
        input.stages[s] = test::costs(inputs.at("t_f_per_stage").at(s), inputs.at("t_b_per_stage").at(s));
      }
      input.all_reduce = AllReduceMode::free;
      const double tolerance = entry.at("tolerance").at("steady_period").at("abs");
      CHECK(std::abs(steady_period(input).count() - expected.at("steady_period").get<double>()) <= tolerance);
    }
  }

  TEST_CASE("chained steps have the golden period") {
    for (const json& entry : golden("chained_period")) {
      if (!known(entry.at("inputs"))) continue;
      INFO(entry.at("name").get<std::string>());
      const SimulationInput input = unit_costs(entry.at("inputs"), program_set(request_of(entry.at("inputs"))));
      CHECK(chained_period(input).count() ==
            doctest::Approx(entry.at("expected").at("period").get<double>()).epsilon(1e-9));
    }
  }
}

}  // namespace
}  // namespace pp::plan
