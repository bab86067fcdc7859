#include "libplan/report/throughput.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

TEST_SUITE_BEGIN("libplan/report/throughput");

namespace pp::plan::throughput_test {
namespace {

doctest::Approx near(double value) { return doctest::Approx(value).epsilon(1e-12); }

/// 8 positions; products of 256 and 1024 FLOPs forward, twice that backward.
ModelGraph language() {
  ModelGraph graph;
  graph.name = "language";
  graph.inputs = {{"tokens", {{8}, DType::int64}}};
  graph.targets = {{"next", {{8}, DType::int64}}};
  const auto width = [](std::int64_t n) { return Attributes{{"out_features", n}, {"bias", false}}; };
  graph.layers = {{"embed",
                   "embedding",
                   {"tokens"},
                   {{"num_embeddings", std::int64_t{16}}, {"embedding_dim", std::int64_t{4}}}},
                  {"fc", "linear", {"embed"}, width(4)},
                  {"head", "linear", {"fc"}, width(16)}};
  graph.outputs = {"head"};
  graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
  return graph;
}

/// Two stages on two devices, `embed fc | head`, 10 samples a second.
Plan plan_of(std::vector<Recompute> recompute = {}, const std::string& schedule = "1f1b") {
  Plan plan =
      ::make_plan({.model = language(), .cuts = {2}, .schedule = schedule, .recompute = std::move(recompute)});
  plan.predicted.samples_per_s = 10;
  return plan;
}

}  // namespace

TEST_CASE("tokens, FLOP/s and shares of the peak") {
  Plan plan = plan_of();
  plan.peak_flops_per_s = 1e5;
  const Throughput t = throughput_of(plan, {});
  CHECK(t.devices == 2);
  CHECK(t.items_per_s() == near(80));
  CHECK(t.model_flops_per_s == near(10 * 3 * 1280));
  CHECK(*t.model_utilisation() == near(0.192));  // 38400 of 2e5
  CHECK(t.hardware_utilisation() == t.model_utilisation());
  CHECK_FALSE(t.cost_per_million());
  CHECK_FALSE(t.duration());
}

TEST_CASE("where a causal mask hides much, the share of the peak stands also without it") {
  Throughput t{.kind = DeviceKind::cuda, .samples_per_s = 1, .tokens_per_sample = 8, .model_flops_per_s = 7e11};
  t.peak_flops_per_s = 1e12;
  CHECK(to_text(t).find("(MFU 70.0 % of 1 TFLOP/s)\n") != std::string::npos);
  t.masked_share = 0.4;
  CHECK(to_text(t).find("(MFU 70.0 % of 1 TFLOP/s; 42.0 % without pairs that a causal mask hides)\n") !=
        std::string::npos);
  CHECK(to_json(t)["masked_share"] == 0.4);
  t.masked_share = 0.1;
  CHECK(to_text(t).find("mask") == std::string::npos);
}

TEST_CASE("blocks of a profile with checkpoints count once more for the hardware") {
  ModelGraph graph = language();
  graph.layers[1].name = "block0.fc";
  graph.layers[2].inputs = {"block0.fc"};
  Plan plan = ::make_plan({.model = graph, .cuts = {2}});
  plan.predicted.samples_per_s = 10;
  plan.context["checkpoint"] = "blocks";
  const Throughput t = throughput_of(plan, {});
  CHECK(t.model_flops_per_s == near(10 * 3 * 1280));
  CHECK(t.hardware_flops_per_s == near(10 * (3 * 1280 + 256)));
  plan.context["checkpoint"] = "attention";
  CHECK(throughput_of(plan, {}).hardware_flops_per_s == near(10 * 3 * 1280));
}

TEST_CASE("forwards that run again count for the hardware alone") {
  // Stage 0, with 256 of the 1280 FLOPs, runs again as a whole; or its layer fc does inside the backward.
  const double again = 10 * (3 * 1280 + 256);
  Plan whole = plan_of({Recompute::always, Recompute::never});
  CHECK(throughput_of(whole, {}).hardware_flops_per_s == near(again));
  CHECK(throughput_of(whole, {}).model_flops_per_s == near(38400));
  Plan alone = plan_of();
  alone.stages[0].recompute = {"fc"};
  CHECK(throughput_of(alone, {}).hardware_flops_per_s == near(again));
  // Of four micro-batches the last one keeps what it needs.
  Plan most = plan_of({Recompute::except_last, Recompute::never});
  CHECK(throughput_of(most, {}).hardware_flops_per_s == near(10 * (3 * 1280 + 0.75 * 256)));
}

TEST_CASE("forwards alone have no backward to count") {
  CHECK(throughput_of(plan_of({}, "inference"), {}).model_flops_per_s == near(12800));
}

TEST_CASE("money and days") {
  // Two devices at 3.6 an hour are 0.002 a second; 80 tokens a second make a million in 12,500 s. 6,912,000
  // tokens take a day, 48 device hours.
  const Throughput t = throughput_of(plan_of(), {.price_per_hour = 3.6, .tokens = 6'912'000, .samples = {}});
  CHECK(*t.cost_per_million() == near(25));
  CHECK(t.duration()->count() == near(86400));
  CHECK(*t.cost() == near(172.8));
  CHECK(
      throughput_of(plan_of(), {.price_per_hour = {}, .tokens = {}, .samples = 864'000}).duration()->count() ==
      near(86400));
}

TEST_CASE("a tensor group is as many GPUs as it has members") {
  Plan plan = plan_of();
  plan.tensor_degree = 4;
  plan.peak_flops_per_s = 1e5;
  const Throughput t = throughput_of(plan, {.price_per_hour = 3.6, .tokens = {}, .samples = {}});
  CHECK(t.devices == 8);
  CHECK(*t.model_utilisation() == near(0.048));
  CHECK(*t.cost_per_million() == near(100));
}

TEST_CASE("the words for people") {
  Plan plan = plan_of({Recompute::always, Recompute::never});
  plan.peak_flops_per_s = 1e7;
  plan.devices[0].kind = DeviceKind::cuda;
  CHECK(to_text(throughput_of(plan, {.price_per_hour = 3.6, .tokens = 6'912'000, .samples = {}})) ==
        "80 tokens/s, 40 per GPU\n"
        "0.0192 MFLOP/s per GPU of the model's products (MFU 0.2 % of 10 MFLOP/s), 0.02048 MFLOP/s with what "
        "runs again (HFU 0.2 %)\n"
        "25 per million tokens at 3.6 per GPU and hour\n"
        "6912000 tokens in 1 days for 172.8\n");
  const Json json = to_json(throughput_of(plan, {.price_per_hour = 3.6, .tokens = 6'912'000, .samples = {}}));
  CHECK(json["tokens_per_s_per_device"] == 40.0);
  CHECK(json["mfu"].get<double>() == near(0.00192));
  CHECK(json["cost_per_million_tokens"].get<double>() == near(25));
  CHECK(json["duration_s"].get<double>() == near(86400));
}

TEST_CASE("a model without tokens speaks of samples, and only when asked") {
  ModelGraph numbers;
  numbers.name = "numbers";
  numbers.inputs = {{"x", {{4}, DType::float32}}};
  numbers.layers = {{"a", "linear", {"x"}, {{"out_features", std::int64_t{4}}}},
                    {"b", "linear", {"a"}, {{"out_features", std::int64_t{4}}}}};
  numbers.outputs = {"b"};
  Plan plan = ::make_plan({.model = numbers, .cuts = {1}});
  plan.predicted.samples_per_s = 10;
  CHECK(to_text(throughput_of(plan, {})).empty());
  const Throughput t = throughput_of(plan, {.price_per_hour = 3.6, .tokens = {}, .samples = {}});
  CHECK(*t.cost_per_million() == near(200));
  CHECK(to_text(t).ends_with("200 per million samples at 3.6 per device and hour\n"));
  try {
    check_budget({.price_per_hour = {}, .tokens = 1e6, .samples = {}}, numbers);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()) ==
          "--tokens: no embedding of numbers looks up its data, so it has no tokens; give --samples");
  }
}

}  // namespace pp::plan::throughput_test

TEST_SUITE_END();
