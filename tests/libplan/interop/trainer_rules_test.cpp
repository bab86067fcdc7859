#include "libplan/interop/trainer_rules.h"
#include "libplan/answer/make_plan.h"

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "tests/libplan/interop/exports.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/interop/trainer_rules");

namespace pp::plan::trainer_rules_test {
namespace {

/// embed, h.0.a, h.0.b, .., h.3.b, head: uneven blocks would be no row, so the ends differ and weigh. Every
/// layer keeps `saved` bytes of a sample.
Profile language(std::int64_t saved = 100) {
  std::vector<test::LayerRow> rows{{3, 4, 3'000'000, 50'000, saved, 0, 0}};
  for (int block = 0; block < 4; ++block) {
    rows.push_back({1, 2, 1'000'000, 90'000, saved, 0, 0});
    rows.push_back({2, 5, 2'000'000, 50'000, saved, 0, 0});
  }
  rows.push_back({4, 9, 4'000'000, 10'000, saved, 0, 0});
  Profile profile = test::make_profile({rows, {}, {1, 2, 4}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string name = i == 0 ? "embed" : i + 1 == rows.size() ? "head" : "h." + std::to_string((i - 1) / 2);
    if (name[1] == '.') name += i % 2 == 1 ? ".a" : ".b";
    profile.layers[i].name = profile.model.layers[i].name = name;
    if (i > 0) profile.model.layers[i].inputs = {profile.layers[i - 1].name};
  }
  profile.model.outputs = {"head"};
  profile.model_hash = model_hash(profile.model);
  return profile;
}

PlanRequest request_of(int mini_batch) {
  PlanRequest request;
  request.mini_batch = mini_batch;
  return request;
}

std::optional<Plan> best(const PlanRequest& request, int devices, const Profile& profile = language()) {
  auto found = make_plan(profile, test::make_cluster(devices), request);
  if (auto* plan = std::get_if<Plan>(&found)) return std::move(*plan);
  return std::nullopt;
}

std::string refusal(Trainer trainer, const PlanRequest& request) {
  return pp::test::error_of([&] { for_trainer(trainer, request, DType::float32); }, ErrorKind::usage);
}

/// The best plan of eight samples on four devices for the trainer, of a model that keeps 1 MB a layer and
/// sample.
std::optional<Plan> within(Trainer trainer, RecomputeMode mode, Bytes limit) {
  PlanRequest request = request_of(8);
  request.memory_limit = limit;
  request.recompute = mode;
  request.optimizer = OptimizerName::adamw;
  request.optimizer_state_ratio = 1;
  return best(for_trainer(trainer, request, DType::float32), 4, language(1'000'000));
}

bool is_checkpointed(const Plan& plan) { return plan.context.contains("checkpoint"); }

/// As `least` of a plan that there may not be.
void take_less(Seconds& least, const std::optional<Plan>& plan) {
  if (plan) least = std::min(least, plan->predicted.step);
}

/// The least step of all plans of hybrid that can be exported: cuts between blocks, replicas and micro-batches
/// one by one. 1e9 s: none of them fits. `change` is applied to each request, which `planned` answers.
template <class Change, class Planned>
Seconds least_of_all(int mini_batch, int devices, const Change& change, const Planned& planned) {
  const std::array borders{1, 3, 5, 7, 9};
  Seconds least{1e9};
  for (unsigned set = 0; set < 1U << borders.size(); ++set) {
    std::vector<int> cuts;
    for (std::size_t b = 0; b < borders.size(); ++b)
      if ((set >> b & 1U) != 0) cuts.push_back(borders[b]);
    for (int replicas = 1; replicas * (std::ssize(cuts) + 1) <= devices; ++replicas) {
      for (const int size : {1, 2, 4}) {
        if (mini_batch % size != 0 || mini_batch / size % replicas != 0) continue;
        PlanRequest request = request_of(mini_batch);
        request.schedule = "hybrid";
        request.window = WindowRule::win;
        request.placement = Placement::packed;
        request.cuts = cuts;
        request.replicas.assign(cuts.size() + 1, replicas);
        request.micro_batches = mini_batch / size;
        change(request);
        take_less(least, planned(request));
      }
    }
  }
  return least;
}
template <class Change>
Seconds least_of_all(const Profile& profile, int mini_batch, int devices, const Change& change) {
  return least_of_all(mini_batch, devices, change,
                      [&](const PlanRequest& request) { return best(request, devices, profile); });
}

}  // namespace

TEST_CASE("--for megatron finds the best of all plans of pipelines side by side that it can run") {
  for (const auto& [mini_batch, devices] : {std::pair{8, 4}, std::pair{12, 6}, std::pair{6, 4}}) {
    CAPTURE(mini_batch);
    PlanRequest request = request_of(mini_batch);
    request.schedule = "hybrid";
    const std::optional<Plan> plan = best(for_trainer(Trainer::megatron, request, DType::float32), devices);
    REQUIRE(plan);
    CHECK(plan->predicted.step.count() ==
          doctest::Approx(least_of_all(language(), mini_batch, devices, [](PlanRequest&) {}).count())
              .epsilon(1e-9));
    CHECK_NOTHROW(export_megatron(*plan, Losses::refuse));
  }
}

TEST_CASE("what is found for a trainer can be exported to it, and says for whom it is") {
  for (const int devices : {2, 3, 4, 6, 8}) {
    CAPTURE(devices);
    const std::optional<Plan> megatron =
        best(for_trainer(Trainer::megatron, request_of(24), DType::float32), devices);
    REQUIRE(megatron);
    CHECK_NOTHROW(export_megatron(*megatron, Losses::refuse));
    CHECK(megatron->context.at("for") == "megatron");
    PlanRequest adam = request_of(24);
    adam.optimizer = OptimizerName::adamw;
    adam.optimizer_state_ratio = 2;
    const std::optional<Plan> titan = best(for_trainer(Trainer::torchtitan, adam, DType::float32), devices);
    REQUIRE(titan);
    CHECK_NOTHROW(export_torchtitan(*titan, Losses::refuse));
    CHECK(titan->context.at("for") == "torchtitan");
  }
  CHECK_FALSE(best(request_of(24), 4)->context.contains("for"));
}

TEST_CASE("a plan for a trainer uses as many devices of each node, and is the best that does") {
  // Two nodes of four: torchrun starts one to four processes on one node, or as many on both, which is all
  // eight where stages go through the devices in order. Five and seven samples would keep five and seven busy.
  const Cluster cluster =
      nested_cluster(std::array{LevelSpec{4, BytesPerSecond(1e9)}, LevelSpec{2, BytesPerSecond(1e9)}},
                     DeviceKind::cpu, Seconds(0), Bytes(0));
  const auto planned = [&](const PlanRequest& request) {
    auto found = make_plan(language(), cluster, request);
    return std::get_if<Plan>(&found) != nullptr ? std::optional(std::get<Plan>(std::move(found)))
                                                : std::nullopt;
  };
  int idle = 0;
  for (const int mini_batch : {5, 6, 7, 8, 12}) {
    CAPTURE(mini_batch);
    PlanRequest request = request_of(mini_batch);
    request.schedule = "hybrid";
    const std::optional<Plan> plan = planned(for_trainer(Trainer::megatron, request, DType::float32));
    REQUIRE(plan);
    CHECK_NOTHROW(export_megatron(*plan, Losses::refuse));
    const Seconds least = least_of_all(
        mini_batch, 8, [](PlanRequest&) {},
        [&](const PlanRequest& one) {
          const std::size_t devices = one.replicas.size() * static_cast<std::size_t>(one.replicas.front());
          return devices <= 4 || devices == 8 ? planned(one) : std::nullopt;
        });
    CHECK(plan->predicted.step.count() == doctest::Approx(least.count()).epsilon(1e-9));
    CHECK(plan->certificate.lower_bound <= plan->predicted.step);
    idle += plan->workers.size() < 8 ? 1 : 0;
  }
  CHECK(idle > 0);
  // Of four and two devices two are one too many for the second node.
  Cluster uneven = cluster;
  uneven.devices.resize(6);
  const auto found =
      make_plan(language(), uneven, for_trainer(Trainer::megatron, request_of(12), DType::float32));
  REQUIRE(std::holds_alternative<Plan>(found));
  CHECK(std::get<Plan>(found).workers.size() <= 4);
}

TEST_CASE("micro-batches that are not of one size are refused where a trainer needs it") {
  PlanRequest request = for_trainer(Trainer::megatron, request_of(10), DType::float32);
  const auto why = [&]() -> std::string {
    try {
      best(request, 4);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "planned";
  };
  request.micro_batches = 4;
  CHECK(why() ==
        "micro_batches = 4: 10 samples make no micro-batches of one size, which --for megatron needs; give a "
        "divisor of the mini-batch, or leave it out");
  request.micro_batches = 5;
  CHECK(why() == "planned");
  request.micro_batches.reset();
  request.micro_batch_size = 4;
  CHECK(why().starts_with("micro_batch_size = 4: 10 samples"));
}

TEST_CASE("--recompute auto for torchtitan is the better of never and always, and can be exported") {
  int won_by_never = 0, won_by_always = 0, only_always = 0, neither = 0;
  for (std::int64_t limit = 8'000'000; limit <= 64'000'000; limit += 4'000'000) {
    CAPTURE(limit);
    const auto never = within(Trainer::torchtitan, RecomputeMode::never, Bytes(limit));
    const auto always = within(Trainer::torchtitan, RecomputeMode::always, Bytes(limit));
    const auto better = within(Trainer::torchtitan, RecomputeMode::automatic, Bytes(limit));
    REQUIRE(better.has_value() == (never || always));
    if (!better) {
      ++neither;
      continue;
    }
    const bool keeps = never && (!always || never->predicted.step <= always->predicted.step);
    const Plan& best = keeps ? *never : *always;
    CHECK(better->predicted.step.count() == doctest::Approx(best.predicted.step.count()).epsilon(1e-9));
    CHECK(better->schedule.recompute == RecomputePolicy::never);
    CHECK(is_checkpointed(*better) != keeps);
    CHECK_NOTHROW(export_torchtitan(*better, Losses::refuse));
    ++(keeps ? won_by_never : never ? won_by_always : only_always);
  }
  CHECK(neither > 0);
  CHECK(only_always > 0);
  CHECK(won_by_always > 0);
  CHECK(won_by_never > 0);
}

TEST_CASE("--recompute always of a trainer is a profile with checkpoints, to the unit") {
  const auto same = [](const Plan& one, const Plan& other) {
    CHECK(one.predicted.step == other.predicted.step);
    CHECK(one.predicted.workers == other.predicted.workers);
    CHECK(one.context.at("checkpoint") == "blocks");
  };
  Profile plain = language(1'000'000);
  PlanRequest request = request_of(8);
  request.memory_limit = Bytes(40'000'000);
  request.stages = 4;
  for (const Trainer trainer : {Trainer::megatron, Trainer::torchtitan}) {
    PlanRequest always = request;
    always.optimizer = OptimizerName::adamw;
    always.optimizer_state_ratio = 1;
    always = for_trainer(trainer, always, DType::float32);
    PlanRequest never = always;
    always.recompute = RecomputeMode::always;
    const auto here = best(always, 4, plain), there = best(never, 4, with_checkpoints(plain));
    REQUIRE((here && there));
    same(*here, *there);
    same(*best(always, 4, with_checkpoints(plain)), *here);  // not twice
  }
  // The trainer of an estimate counts where none is named; that of pp-run runs whole stages again by R.
  plain.trainer.emplace().name = "loop";
  request.recompute = RecomputeMode::always;
  CHECK(best(request, 4, plain)->schedule.recompute == RecomputePolicy::always);
  plain.trainer->recompute = RecomputeExtent::uniform;
  PlanRequest never = request;
  never.recompute = RecomputeMode::never;
  same(*best(request, 4, plain), *best(never, 4, with_checkpoints(plain)));
  // Neither of the two searches of auto has a plan below its bound.
  request.recompute = RecomputeMode::automatic;
  const Certificate either = best(request, 4, plain)->certificate;
  CHECK(either.lower_bound == std::min(best(never, 4, plain)->certificate.lower_bound,
                                       best(never, 4, with_checkpoints(plain))->certificate.lower_bound));
  CHECK(either.gap == doctest::Approx(either.objective / either.lower_bound - 1));
}

TEST_CASE("--recompute auto of a model without blocks is never, whatever a trainer recomputes") {
  const std::vector<test::LayerRow> rows(4, {1, 2, 1'000'000, 90'000, 1'000'000, 0, 0});
  Profile unnumbered = test::make_profile({rows, {}, {1, 2, 4}});
  unnumbered.trainer.emplace().name = "loop";
  for (const RecomputeExtent extent : {RecomputeExtent::uniform, RecomputeExtent::first_blocks}) {
    unnumbered.trainer->recompute = extent;
    PlanRequest request = request_of(8);
    const auto never = best(request, 4, unnumbered);
    request.recompute = RecomputeMode::automatic;
    const auto automatic = best(request, 4, unnumbered);
    REQUIRE((never && automatic));
    CHECK(automatic->predicted.step == never->predicted.step);
    request.recompute = RecomputeMode::always;
    CHECK_THROWS_AS(best(request, 4, unnumbered), Error);
  }
}

TEST_CASE(
    "--recompute auto for megatron is never, always, or the first blocks of every stage, whichever is best") {
  int by_blocks = 0, better_than_both = 0;
  for (std::int64_t limit = 8'000'000; limit <= 64'000'000; limit += 4'000'000) {
    CAPTURE(limit);
    const auto never = within(Trainer::megatron, RecomputeMode::never, Bytes(limit));
    const auto always = within(Trainer::megatron, RecomputeMode::always, Bytes(limit));
    const auto best = within(Trainer::megatron, RecomputeMode::automatic, Bytes(limit));
    Seconds uniform{1e9};
    take_less(uniform, never);
    take_less(uniform, always);
    if (!best) {
      CHECK(uniform.count() == 1e9);
      continue;
    }
    CHECK(best->predicted.step.count() <= uniform.count() * (1 + 1e-9));
    for (const WorkerPrediction& worker : best->predicted.workers) CHECK(worker.memory.peak <= Bytes(limit));
    const TrainerExport folder = export_megatron(*best, Losses::refuse);
    const std::string& arguments = folder.files.front().content;
    const bool blocks = arguments.find("--recompute-method block\n") != std::string::npos;
    CHECK((arguments.find("--recompute-") != std::string::npos) ==
          (is_checkpointed(*best) || best->schedule.recompute != RecomputePolicy::never));
    by_blocks += blocks ? 1 : 0;
    better_than_both += best->predicted.step.count() < uniform.count() * (1 - 1e-9) ? 1 : 0;
  }
  CHECK(by_blocks > 0);
  CHECK(better_than_both > 0);
}

TEST_CASE("--recompute auto for megatron misses none of the plans with first blocks") {
  const Profile profile = language(1'000'000);
  int limited = 0;
  for (std::int64_t limit = 16'000'000; limit <= 56'000'000; limit += 8'000'000) {
    CAPTURE(limit);
    const auto change = [&](PlanRequest& request) {
      request.memory_limit = Bytes(limit);
      request.recompute = RecomputeMode::automatic;
      request.optimizer = OptimizerName::adamw;
      request.optimizer_state_ratio = 1;
      request = for_trainer(Trainer::megatron, request, DType::float32);
    };
    PlanRequest request = request_of(8);
    request.schedule = "hybrid";
    change(request);
    const Seconds least = least_of_all(profile, 8, 4, change);
    Seconds found{1e9};
    take_less(found, best(request, 4, profile));
    CHECK(found.count() == doctest::Approx(least.count()).epsilon(1e-9));
    limited += least.count() < 1e9 ? 1 : 0;
  }
  CHECK(limited > 2);
}

TEST_CASE("no pipeline of one worker has several stages, which the trainer would run as one") {
  // Weights of 19 MB over links of 1 MB/ms: without the rule one worker with all stages is the fastest.
  PlanRequest request = request_of(8);
  request.schedule = "interleaved";
  const auto lone = [](const Plan& plan) {
    return std::ranges::adjacent_find(plan.stages, std::ranges::not_equal_to(), &Stage::workers) ==
           plan.stages.end();
  };
  Profile profile = language();
  for (LayerProfile& layer : profile.layers)
    for (LayerPoint& point : layer.points) point.output = Bytes(40'000'000);
  CHECK(lone(*best(request, 2, profile)));
  const PlanRequest narrowed = for_trainer(Trainer::megatron, request, DType::float32);
  for (const int devices : {2, 3, 4}) {
    const Plan plan = *best(narrowed, devices, profile);
    CHECK_FALSE(lone(plan));
    CHECK_FALSE(export_megatron(plan, Losses::refuse).files.empty());
  }
  const auto none = make_plan(profile, test::make_cluster(1), narrowed);
  CHECK(std::get<Infeasible>(none).reason ==
        "a pipeline of one worker has one stage, as --for megatron starts it, and interleaved needs several; "
        "plan with 1f1b");
}

TEST_CASE("the request may narrow what the trainer takes, and not widen it") {
  PlanRequest request = request_of(8);
  request.schedule = "interleaved";
  CHECK(for_trainer(Trainer::megatron, request, DType::float32).schedule == "interleaved");
  request.schedule = "interleaved,zb-h1";
  CHECK(refusal(Trainer::megatron, request) ==
        "--schedule: --for megatron takes hybrid,interleaved (it has 1F1B, which is hybrid where pipelines "
        "stand side by side, and interleaved 1F1B); leave one of the two out");
  request.schedule = "1f1b,Interleaved1F1B";
  CHECK(for_trainer(Trainer::megatron, request, DType::float32).schedule == "hybrid,interleaved");
  CHECK(find_enum<Trainer>("nemo") == Trainer::megatron);
  request.schedule = "interleaved,zb-h1";
  request.optimizer = OptimizerName::adamw;
  CHECK(for_trainer(Trainer::torchtitan, request, DType::float32).schedule == "interleaved,zb-h1");
  const auto refused = [](const std::function<void(PlanRequest&)>& change, const std::string& option) {
    PlanRequest changed = request_of(8);
    change(changed);
    return refusal(Trainer::megatron, changed).starts_with(option + ": --for megatron takes ");
  };
  CHECK(refused([](PlanRequest& r) { r.window = WindowRule::wide; }, "--window"));
  CHECK(refused([](PlanRequest& r) { r.cut_at = PlanRequest::CutAt{2}; }, "--cut-at"));
  CHECK(refused([](PlanRequest& r) { r.replicas = {2, 1}; }, "--replicas"));
  CHECK(refused([](PlanRequest& r) { r.placement = Placement::scatter; }, "--placement"));
  CHECK(refused([](PlanRequest& r) { r.recompute = RecomputeMode::except_last; }, "--recompute"));
  CHECK(refused([](PlanRequest& r) { r.optimizer = OptimizerName::adagrad; }, "--optimizer"));
  CHECK(refused([](PlanRequest& r) { r.allow_async = true; }, "--allow-async, --weight-policy"));
  PlanRequest mixed = request_of(8);
  mixed.precision = Precision::mixed;
  PlanRequest adam = mixed;
  adam.optimizer = OptimizerName::adam;
  CHECK(refusal(Trainer::torchtitan, adam) == "");
  CHECK(refusal(Trainer::torchtitan, mixed) ==
        "--optimizer: --for torchtitan takes adam, adamw (it has no other); leave one of the two out");
  CHECK(refusal(Trainer::megatron, mixed) == "");
  mixed.precision = Precision::autocast;
  CHECK(refusal(Trainer::megatron, mixed)
            .starts_with("--precision: --for megatron takes mixed, of float32 plain ("));
  // A half type is trained with a float32 master by the one, as it is by the other.
  CHECK(for_trainer(Trainer::megatron, request_of(8), DType::bfloat16).precision == Precision::mixed);
  CHECK(for_trainer(Trainer::megatron, request_of(8), DType::float32).precision == Precision::plain);
  adam.precision = Precision::plain;
  CHECK(for_trainer(Trainer::torchtitan, adam, DType::bfloat16).precision == Precision::plain);
  const PlanRequest deep = for_trainer(Trainer::deepspeed, {}, DType::bfloat16);
  CHECK(deep.schedule == "hybrid");
  CHECK(deep.precision == Precision::mixed);
  CHECK(deep.recompute_extent == RecomputeExtent::uniform);
  CHECK(deep.all_reduce_overlap == 0);
}

TEST_CASE("a model or a profile that no plan for the trainer could be made of is refused at once") {
  Profile profile = language();
  for (Layer& layer : profile.model.layers)
    layer.name.erase(std::remove(layer.name.begin(), layer.name.end(), '.'), layer.name.end());
  for (std::size_t i = 1; i < profile.model.layers.size(); ++i)
    profile.model.layers[i].inputs = {profile.model.layers[i - 1].name};
  CHECK(test::refusal([&] {
          check_model(Trainer::torchtitan, profile);
        }).starts_with("--for torchtitan cannot run this plan: it takes a row of two or more equal blocks"));
  CHECK_NOTHROW(check_model(Trainer::megatron, language()));
  Profile cast = language();
  cast.autocast = Autocast::bfloat16;
  CHECK_THROWS_WITH(check_model(Trainer::megatron, cast),
                    "--for megatron: the profile ran under autocast, which it has not; profile with --dtype "
                    "bfloat16, and weights are half ones with a float32 master");
  CHECK_NOTHROW(check_model(Trainer::torchtitan, cast));
}

TEST_CASE("every limit says why") {
  for (const Trainer trainer : {Trainer::megatron, Trainer::torchtitan}) {
    for (const TrainerRule& rule : rules_of(trainer)) {
      CHECK(rule.option.starts_with("--"));
      CHECK_FALSE(rule.value.empty());
      CHECK_FALSE(rule.reason.empty());
      PlanRequest request = request_of(8);
      request.optimizer = OptimizerName::adamw;
      CHECK(rule.admits(for_trainer(trainer, request, DType::bfloat16)));  // what it sets it takes
    }
  }
}

}  // namespace pp::plan::trainer_rules_test

TEST_SUITE_END();
