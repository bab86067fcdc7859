#include "libplan/explorer/timeline_data.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

constexpr int kForward = 0, kBackward = 1, kAllReduce = 5;  // places in EnumNames<OpKind>

struct Timed {
  int worker;
  OpKind kind;
  int stage, micro_batch;
  double start, end;
};

/// By start, as a simulation has them.
SimulationResult result_of(std::size_t workers, std::vector<Timed> ops) {
  std::ranges::stable_sort(ops, {}, &Timed::start);
  SimulationResult result;
  result.busy.resize(workers);
  for (const Timed& op : ops) {
    result.ops.push_back({WorkerId{op.worker},
                          {op.kind, StageId{op.stage}, op.micro_batch},
                          Seconds(op.start),
                          Seconds(op.end)});
    result.busy[static_cast<std::size_t>(op.worker)] += Seconds(op.end - op.start);
    result.makespan = std::max(result.makespan, Seconds(op.end));
  }
  return result;
}

/// F 1 s and B 2 s of a micro-batch from 0 on, then an all-reduce until 8 s.
std::vector<Timed> replica(int worker, int micro_batch) {
  return {{worker, OpKind::forward, 0, micro_batch, 0, 1},
          {worker, OpKind::backward, 0, micro_batch, 1, 3},
          {worker, OpKind::all_reduce, 0, 0, 3, 8}};
}

std::vector<Timed> joined(std::vector<Timed> a, const std::vector<Timed>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_SUITE("libplan/explorer/timeline data") {
  TEST_CASE("replicas are one row with what they add to the micro-batches; equal operations are one type") {
    const Json data = timeline_data(result_of(2, joined(replica(0, 4), replica(1, 5))), {});
    CHECK(data["length"] == 8.0);
    CHECK(data["operations"] == 6);
    CHECK(data["joined"] == 0.0);
    CHECK(data["types"] == Json({{kForward, 0, 1.0}, {kBackward, 0, 2.0}, {kAllReduce, 0, 5.0}}));
    REQUIRE(data["rows"].size() == 1);
    const Json& row = data["rows"][0];
    CHECK(row["workers"] == Json({0, 1}));
    CHECK(row["shifts"] == Json({0, 1}));
    CHECK(row["busy"] == 8.0);
    // Type, micro-batch, gap: none, as one operation follows the other. An all-reduce is of no micro-batch.
    CHECK(row["ops"] == Json({0, 4, 0, 1, 4, 0, 2, -1, 0}));
    CHECK_FALSE(row.contains("memory"));
  }

  TEST_CASE("gaps are in ticks from the end of the operation before") {
    // The length is 8 s, 1e7 ticks: 1.25e6 a second. F at 2 s, B at 6 s, 3 s after the end of F.
    const Json data =
        timeline_data(result_of(1, {{0, OpKind::forward, 0, 0, 2, 3}, {0, OpKind::backward, 0, 0, 6, 8}}), {});
    CHECK(data["ticks"] == 1e7);
    CHECK(data["rows"][0]["ops"] == Json({0, 0, 2'500'000, 1, 0, 3'750'000}));
    CHECK_FALSE(data["rows"][0].contains("shifts"));
  }

  TEST_CASE("workers whose micro-batches differ by no constant have rows of their own") {
    std::vector<Timed> ops{{0, OpKind::forward, 0, 0, 0, 1},
                           {0, OpKind::forward, 0, 2, 1, 2},
                           {1, OpKind::forward, 0, 1, 0, 1},
                           {1, OpKind::forward, 0, 5, 1, 2}};
    CHECK(timeline_data(result_of(2, ops), {})["rows"].size() == 2);
    ops[3].micro_batch = 3;
    CHECK(timeline_data(result_of(2, ops), {})["rows"].size() == 1);
    ops[3].end = 2.5;
    CHECK(timeline_data(result_of(2, ops), {})["rows"].size() == 2);
  }

  TEST_CASE(
      "memory is a list of steps among the parts that occur; replicas that hold other bytes are two rows") {
    const SimulationResult result = result_of(2, joined(replica(0, 0), replica(1, 1)));
    MemoryParts idle, saved;
    idle.weights = saved.weights = Bytes(100);
    saved.saved = Bytes(50);
    const MemoryCurve curve{{Seconds(0), idle}, {Seconds(1), saved}, {Seconds(3), idle}};
    const std::vector<MemoryCurve> equal{curve, curve};
    const Json data = timeline_data(result, equal);
    // In the order of kMemoryParts: weights, gradients, optimizer, boundary, versions, saved, workspace.
    CHECK(data["parts"] == Json({{100, 0, 0, 0, 0, 0, 0}, {100, 0, 0, 0, 0, 50, 0}}));
    REQUIRE(data["rows"].size() == 1);
    CHECK(data["rows"][0]["memory"] == Json({0, 0, 1'250'000, 1, 2'500'000, 0}));
    const std::vector<MemoryCurve> unequal{curve, {{Seconds(0), idle}}};
    CHECK(timeline_data(result, unequal)["rows"].size() == 2);
  }

  TEST_CASE("too many operations are joined: their time by kind is kept") {
    // 64 pairs of F 0.025 s and B 0.1 s: 8 s. At most 8 entries are at most 4 boxes of both kinds, of 2 s and
    // more.
    std::vector<Timed> ops;
    for (int m = 0; m < 64; ++m) {
      ops.push_back({0, OpKind::forward, 0, m, m * 0.125, m * 0.125 + 0.025});
      ops.push_back({0, OpKind::backward, 0, m, m * 0.125 + 0.025, m * 0.125 + 0.125});
    }
    const Json data = timeline_data(result_of(1, ops), {}, {.operations = 8});
    CHECK(data["operations"] == 128);
    CHECK(data["joined"].get<double>() > 2);
    const Json& list = data["rows"][0]["ops"];
    CHECK(list.size() <= 3 * 8);
    double forward = 0, all = 0;
    for (std::size_t i = 0; i < list.size(); i += 3) {
      const Json& type = data["types"][list[i].get<std::size_t>()];
      CHECK(list[i + 1] == -2);
      all += type[2].get<double>();
      if (type[0] == kForward) forward += type[2].get<double>();
    }
    CHECK(all == doctest::Approx(8).epsilon(0.1));
    CHECK(forward == doctest::Approx(64 * 0.025).epsilon(0.2));  // rounded to 1/32 of what was joined
  }

  TEST_CASE("too many steps of memory are sampled, and the peak is kept") {
    MemoryCurve curve;
    for (int i = 0; i < 10'000; ++i) {
      MemoryParts held;
      held.saved = Bytes(i % 7 + (i == 4321 ? 1000 : 0));
      curve.push_back({Seconds(8.0 * i / 10'000), held});
    }
    const std::vector<MemoryCurve> memory{curve};
    const Json data = timeline_data(result_of(1, replica(0, 0)), memory, {.memory_steps = 100});
    CHECK(data["rows"][0]["memory"].size() <= 2 * 100);
    std::int64_t peak = 0;
    for (const Json& parts : data["parts"]) peak = std::max(peak, parts[5].get<std::int64_t>());
    CHECK(peak == 1000 + 4321 % 7);
  }

  TEST_CASE("no operation and no length are data, too") {
    const Json data = timeline_data(result_of(1, {{0, OpKind::forward, 0, 0, 0, 0}}), {});
    CHECK(data["rows"][0]["ops"] == Json({0, 0, 0}));
    CHECK(timeline_data(result_of(1, {}), {})["rows"][0]["ops"].empty());
  }

  TEST_CASE("2,048 workers that all differ stay below 2.5 MB") {
    std::vector<Timed> ops;
    std::vector<MemoryCurve> memory(2048);
    for (int w = 0; w < 2048; ++w) {
      double time = 0.001 * w;
      for (int m = 0; m < 64; ++m) {
        for (const OpKind kind : {OpKind::forward, OpKind::backward}) {
          const double end = time + 0.01 + 1e-5 * (w % 13);
          ops.push_back({w, kind, w, m, time, end});
          MemoryParts held;
          held.saved = Bytes(1'000'000'000 + 1'000'000 * m + w);
          memory[static_cast<std::size_t>(w)].push_back({Seconds(time), held});
          time = end + 0.001 * (m % 5);
        }
      }
    }
    const Json data = timeline_data(result_of(2048, ops), memory);
    CHECK(data["rows"].size() == 2048);
    CHECK(dump_json_compact(data).size() < 2'500'000);
  }
}

}  // namespace
}  // namespace pp::plan
