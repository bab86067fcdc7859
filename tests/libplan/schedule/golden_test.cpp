// The golden values for schedules (tests/data/schedules) of the groups that the generators here can answer. The
// project's own cases derive the same figures by hand.
#include <algorithm>
#include <map>

#include "libplan/schedule/closed_forms.h"
#include "tests/libplan/schedule/golden_cases.h"
#include "tests/libplan/simulate/support.h"

#include "tests/support/doctest.h"

namespace pp::plan::golden_test {
namespace {

using nlohmann::json;
using pp::test::golden;
using test::equal_stages;
using test::without_updates;

ScheduleRequest request_of(const json& inputs) {
  ScheduleRequest request{inputs.at("schedule"), {}, 1, WindowRule::published, {}};
  request.chunks_per_worker = inputs.value("chunks_per_worker", 0);
  if (inputs.contains("replicas")) {
    request.replicas = inputs.at("replicas").get<std::vector<int>>();
  } else {
    request.replicas.assign(inputs.at("workers").get<std::size_t>(), 1);
    request.micro_batches = inputs.at("micro_batches");
  }
  return request;
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

/// (cost - M*T)/cost, cost = the largest last end - first start of a worker.
double simulated_bubble_rate(const ScheduleRequest& request, const ShareTimes& times, double latency) {
  const int v = chunks_of(request);
  SimulationInput input = equal_stages(program_set(request));
  for (StageCosts& stage : input.stages) {
    stage.forward = Seconds(times.forward / v);
    stage.input_gradient = Seconds(times.input_gradient / v);
    stage.weight_gradient = Seconds(times.weight_gradient / v);
    stage.backward = stage.input_gradient + stage.weight_gradient;
  }
  test::link_all(input, {BytesPerSecond(0), Seconds(latency)});
  std::map<WorkerId, std::pair<double, double>> spans;
  for (const OpEvent& event : simulate(input).ops) {
    if (!has_micro_batch(event.op.kind)) continue;
    auto& [first, last] = spans.try_emplace(event.worker, event.start.count(), 0).first->second;
    last = std::max(last, event.end.count());
  }
  double cost = 0;
  for (const auto& [worker, span] : spans) cost = std::max(cost, span.second - span.first);
  return 1 - request.micro_batches * times.total() / cost;
}

TEST_SUITE("libplan/schedule/golden") {
  TEST_CASE("the generators make the golden lists") {
    for (const json& entry : golden("program")) {
      const json& inputs = entry.at("inputs");
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
    }
  }

  TEST_CASE("every schedule takes the golden time, with the golden bubble and peaks, or is refused") {
    for (const json& entry : golden("timing")) {
      INFO(entry.at("name").get<std::string>());
      const ScheduleRequest request = request_of(entry.at("inputs"));
      if (entry.at("expected").contains("error_contains")) {
        CHECK(test::error_of([&] {
                make_schedule(request);
              }).find(entry.at("expected").at("error_contains").get<std::string>()) != std::string::npos);
        continue;
      }
      const ProgramSet set = program_set(request);
      CHECK_NOTHROW(validate(set));
      check_timing(entry, unit_costs(entry.at("inputs"), set));
    }
  }

  TEST_CASE("recomputation takes the golden time, early and late") {
    for (const json& entry : golden("recompute")) {
      INFO(entry.at("name").get<std::string>());
      const json& inputs = entry.at("inputs");
      ScheduleRequest request = request_of(inputs);
      request.recompute = {*find_enum<Recompute>(inputs.at("recompute").get<std::string>())};
      ProgramSet set = program_set(request);
      set.recompute_start = *find_enum<RecomputeStart>(inputs.at("recompute_kind").get<std::string>());
      CHECK_NOTHROW(validate(set));
      for (const Program& program : set.workers) {
        CHECK(std::ranges::count(program, OpKind::recompute, &Op::kind) ==
              entry.at("expected").at("recompute_ops_per_stage").get<int>());
      }
      SimulationInput input = equal_stages(set);
      for (StageCosts& stage : input.stages) stage = test::costs(inputs.at("t_f"), inputs.at("t_b"));
      CHECK(test::makespan(input) ==
            doctest::Approx(entry.at("expected").at("makespan").get<double>()).epsilon(1e-9));
    }
  }

  TEST_CASE("token generation takes the golden ticks") {
    for (const json& entry : golden("token_generation")) {
      INFO(entry.at("name").get<std::string>());
      const json& inputs = entry.at("inputs");
      ScheduleRequest request{"generation",
                              std::vector<int>(inputs.at("stages").get<std::size_t>(), 1),
                              inputs.at("sequence_groups"),
                              WindowRule::win,
                              {}};
      request.token_count = inputs.at("tokens");
      for (const bool barrier : {true, false}) {
        request.tokens.barrier = barrier;
        const ProgramSet set = program_set(request);
        CHECK_NOTHROW(validate(set));
        CHECK(test::makespan(equal_stages(set)) ==
              entry.at("expected").at(barrier ? "barrier_ticks" : "queued_ticks").get<double>());
      }
    }
  }

  TEST_CASE("chimera takes the golden slots where F and B take one each") {
    for (const json& entry : golden("chimera")) {
      INFO(entry.at("name").get<std::string>());
      SimulationInput input = equal_stages(program_set(request_of(entry.at("inputs"))));
      for (StageCosts& stage : input.stages) stage = test::costs(1, 1);
      const SimulationResult result = simulate(input);
      CHECK(result.makespan.count() == entry.at("expected").at("slots").get<double>());
      CHECK(result.bubble_fraction ==
            doctest::Approx(entry.at("expected").at("bubble_fraction").get<double>()).epsilon(1e-9));
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
      INFO(entry.at("name").get<std::string>());
      const SimulationInput input = unit_costs(entry.at("inputs"), program_set(request_of(entry.at("inputs"))));
      CHECK(chained_period(input).count() ==
            doctest::Approx(entry.at("expected").at("period").get<double>()).epsilon(1e-9));
    }
  }

  TEST_CASE("clock cycles are the golden ones") {
    for (const json& entry : golden("clock_cycles")) {
      INFO(entry.at("name").get<std::string>());
      CHECK(json(clock_cycles(entry.at("inputs").at("micro_batches"), entry.at("inputs").at("stages"))) ==
            entry.at("expected").at("cycles"));
    }
  }

  TEST_CASE("bubble rates of the zero-bubble paper's models, by formula") {
    for (const json& entry : golden("bubble_rate")) {
      const json& inputs = entry.at("inputs");
      const ShareTimes times{inputs.at("t_f_ms"), inputs.at("t_i_ms"), inputs.at("t_w_ms")};
      const double work = inputs.at("micro_batches").get<double>() * times.total();
      for (const auto& [key, name] : {std::pair{"1f1b", "1f1b"},
                                      {"zb-h1", "zb-h1"},
                                      {"zb-h2", "zb-h2"},
                                      {"interleaved_simulated", "interleaved"}}) {
        INFO(entry.at("name").get<std::string>());
        INFO(name);
        ScheduleRequest request{name,
                                std::vector<int>(inputs.at("workers").get<std::size_t>(), 1),
                                inputs.at("micro_batches"),
                                WindowRule::win,
                                {}};
        if (request.name == "interleaved") request.chunks_per_worker = inputs.at("interleaved_chunks");
        const double lost = *bubble_time(request, times, inputs.at("latency_ms"));
        CHECK(std::abs(lost / (lost + work) - entry.at("expected").at(key).get<double>()) <=
              entry.at("tolerance").at("abs").get<double>());
        CHECK(std::abs(simulated_bubble_rate(request, times, inputs.at("latency_ms")) -
                       entry.at("expected").at(key).get<double>()) <=
              entry.at("tolerance").at("abs").get<double>());
      }
    }
  }
}

}  // namespace
}  // namespace pp::plan::golden_test
