// Generation: token for token what a loop over the whole model on one device makes.
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <malloc.h>

#include <atomic>

#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/ops.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "librun/infer/generation.h"
#include "librun/infer/sequences.h"
#include "tests/librun/infer/files.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/small_families.h"
#include "tests/support/torch_test.h"

namespace generation_test {

using namespace pp;
using Files = test::InferFiles;
using test::NamedTensors;

namespace {

constexpr std::int64_t kVocabulary = 19;

ModelGraph decoder() {
  return model::build_family("transformer:layers=2,width=8,heads=2,vocabulary=19,sequence=9,tied=1");
}
ModelGraph translator() {
  return model::build_family("t5_small:layers=1,width=8,heads=2,hidden=16,vocabulary=19,source=6,target=5");
}

NamedTensors trained(const ModelGraph& model) {
  run::RunOptions options = pp::test::synthetic_options(15, 40);
  options.learning_rate = 0.5;
  options.evaluate = false;
  return test::run_plan(make_plan({.model = model}), options).tensors;
}

at::Tensor tokens(std::int64_t samples, std::int64_t length, std::int64_t vocabulary = kVocabulary) {
  return at::arange(samples * length, at::kLong).mul(7).remainder(vocabulary).reshape({samples, length});
}

/// The loop on one device: `sequences` [samples, prompt] of groups of `rows` grow by `count` tokens each.
at::Tensor grown(const ModelGraph& graph, const NamedTensors& weights, NamedTensors others,
                 const std::string& input, std::int64_t length, const at::Tensor& prompts, int count,
                 std::int64_t rows, const run::TokenRule& rule = {}) {
  const test::ModelAlone alone(graph, weights);
  const std::int64_t samples = prompts.size(0), prompt = prompts.size(1);
  at::Tensor all = at::cat({prompts, at::zeros({samples, count}, at::kLong)}, 1);
  for (std::int64_t at = prompt; at < prompt + count; ++at) {
    at::Tensor padded = at::zeros({samples, length}, at::kLong);
    padded.narrow(1, 0, at).copy_(all.narrow(1, 0, at));
    NamedTensors inputs = others;
    inputs.emplace_back(input, padded);
    const at::Tensor logits = alone.outputs(inputs, rows).front().second.select(1, at - 1).to(at::kDouble);
    for (std::int64_t s = 0; s < samples; ++s) {
      const at::Tensor row = logits[s].contiguous();
      const double draw = static_cast<double>(model::mix({1, s, at}, 0) >> 11) * 0x1p-53;
      const std::int64_t next =
          rule.temperature == 0
              ? at::argmax(row).item<std::int64_t>()
              : run::choose_token({row.const_data_ptr<double>(), static_cast<std::size_t>(row.numel())}, rule,
                                  draw);
      all[s][at] = next;
    }
  }
  return all;
}

std::vector<plan::Plan> plans_of(const ModelGraph& model) {
  std::vector<PlanSpec> specs{{},
                              {.cuts = {3}},
                              {.cuts = {2, 9, 14}},
                              {.cuts = {4, 10}, .replicas = {1, 3, 2}},
                              {.cuts = {3, 6, 9}, .schedule = "chimera"},
                              {.cuts = {3, 6, 9}, .schedule = "interleaved"}};
  std::vector<plan::Plan> plans;
  for (PlanSpec& spec : specs) {
    spec.model = model;
    plans.push_back(make_plan(spec));
  }
  return plans;
}

/// One stage, two and four, in groups of three sequences.
void check_cuts(Files& files, const ModelGraph& model, const at::Tensor& expected) {
  files.options.micro_batch = 3;
  const int layers = static_cast<int>(model.layers.size());
  for (const std::vector<int>& cuts :
       {std::vector<int>{}, {layers / 3}, {layers / 4, layers / 2, layers - 2}}) {
    CAPTURE(cuts.size());
    CHECK(files.infer(make_plan({.model = model, .cuts = cuts}))[0].second.equal(expected));
  }
}

}  // namespace

TEST_SUITE("librun/infer/generation") {
  TEST_CASE("a decoder's tokens equal the single device's, whatever the plan") {
    const ModelGraph model = decoder();
    const NamedTensors weights = trained(model);
    const at::Tensor prompts = tokens(7, 3);
    // 3 + 6 tokens are the model's 9 positions, the seventh stands behind them.
    const at::Tensor expected = grown(model, weights, {}, "tokens", 9, prompts, 7, 2);
    Files files({{"tokens", prompts}}, weights, {.new_tokens = 7, .prompt_length = 3});
    files.options.micro_batch = 2;  // groups of 2, 2, 2 and 1
    for (const plan::Plan& plan : plans_of(model)) {
      const std::string where = plan.schedule.name + ", stages " + plan::stages_text(plan);
      CAPTURE(where);
      const NamedTensors found = files.infer(plan);
      REQUIRE(found.size() == 2);
      CHECK(found[0].first == "tokens");
      CHECK(found[0].second.equal(expected));
      CHECK(found[1].first == "tokens.length");
      CHECK(found[1].second.equal(at::full({7}, 10, at::kLong)));
      CHECK(files.report.tokens == 49);
      CHECK(files.report.passes == 28);
    }
    CHECK(expected.narrow(1, 3, 7).ne(expected.select(1, 3).unsqueeze(1)).any().item<bool>());
  }

  TEST_CASE("row 25: decoders of all families write the single device's greedy tokens, whole and cut") {
    for (const std::string_view family : small::kDecoders) {
      CAPTURE(family);
      const ModelGraph model = model::build_family(family);
      const NamedTensors weights = trained(model);
      const std::int64_t length = model.inputs[0].type.shape[0];
      const at::Tensor prompts = tokens(4, 2, small::kVocabulary);
      const at::Tensor expected = grown(model, weights, {}, "tokens", length, prompts, 4, 3);
      Files files({{"tokens", prompts}}, weights, {.new_tokens = 4, .prompt_length = 2});
      check_cuts(files, model, expected);
    }
  }

  TEST_CASE("row 25: encoders with decoders of all families write the single device's greedy tokens") {
    for (const std::string_view family : small::kTranslators) {
      CAPTURE(family);
      const ModelGraph model = model::build_family(family);
      const NamedTensors weights = trained(model);
      const DataTensor &given = model.inputs.at(0), &written = model.inputs.at(1);
      Shape shape = given.type.shape;
      shape.insert(shape.begin(), 4);
      const at::Tensor read = is_floating(given.type.dtype)
                                  ? at::arange(element_count(shape), at::kFloat).sin().reshape(shape)
                                  : tokens(4, shape[1], small::kVocabulary);
      const NamedTensors inputs{{given.name, read}};
      const at::Tensor expected = grown(model, weights, inputs, written.name, written.type.shape[0],
                                        at::full({4, 1}, 1, at::kLong), 3, 3);
      Files files(inputs, weights, {.new_tokens = 3, .start_token = 1});
      check_cuts(files, model, expected);
    }
  }

  TEST_CASE("drawn tokens equal the single device's, whatever the plan") {
    const ModelGraph model = decoder();
    const NamedTensors weights = trained(model);
    const at::Tensor prompts = tokens(5, 2);
    const run::TokenRule rule{.temperature = 0.7, .top_k = 4};
    const at::Tensor expected = grown(model, weights, {}, "tokens", 9, prompts, 6, 2, rule);
    Files files({{"tokens", prompts}}, weights,
                {.new_tokens = 6, .prompt_length = 2, .temperature = 0.7, .top_k = 4});
    files.options.micro_batch = 2;
    for (const plan::Plan& plan : plans_of(model)) CHECK(files.infer(plan)[0].second.equal(expected));
    files.options.seed = 2;
    CHECK_FALSE(files.infer(make_plan({.model = model}))[0].second.equal(expected));
  }

  TEST_CASE("an encoder and decoder: the target grows from a start token, the source is given") {
    const ModelGraph model = translator();
    const NamedTensors weights = trained(model), source{{"source", tokens(5, 6)}};
    const at::Tensor expected =
        grown(model, weights, source, "target", 5, at::full({5, 1}, 0, at::kLong), 5, 2);
    Files files(source, weights, {.new_tokens = 5, .start_token = 0});
    files.options.micro_batch = 2;
    for (const plan::Plan& plan : plans_of(model)) {
      const NamedTensors found = files.infer(plan);
      REQUIRE(found.size() == 2);
      CHECK(found[0].first == "target");
      CHECK(found[0].second.equal(expected));
    }
  }

  TEST_CASE("a sequence ends behind the end token, and its group makes room when all have") {
    const ModelGraph model = decoder();
    const NamedTensors weights = trained(model);
    const at::Tensor prompts = tokens(6, 2);
    for (const int rows : {1, 3}) {
      CAPTURE(rows);
      at::Tensor expected = grown(model, weights, {}, "tokens", 9, prompts, 7, rows);
      at::Tensor lengths = at::full({6}, 9, at::kLong);
      // The second new token of the first sequence ends all that make it.
      const auto end = expected[0][3].item<std::int64_t>();
      std::int64_t made = 0, passes = 0, longest = 0;
      for (std::int64_t s = 0; s < 6; ++s) {
        std::int64_t at = 2;
        while (at < 9 && expected[s][at].item<std::int64_t>() != end) ++at;
        const std::int64_t length = std::min<std::int64_t>(9, at + 1);
        expected[s].narrow(0, length, 9 - length).fill_(end);
        lengths[s] = length;
        made += length - 2;
        longest = s % rows == 0 ? length - 2 : std::max(longest, length - 2);
        if (s % rows == rows - 1) passes += longest;
      }
      REQUIRE(lengths.ne(9).any().item<bool>());
      REQUIRE((rows == 1 || made < passes * rows));  // some sequences of a group end before others
      Files files({{"tokens", prompts}}, weights, {.new_tokens = 7, .prompt_length = 2, .end_token = end});
      files.options.micro_batch = rows;
      for (const plan::Plan& plan : plans_of(model)) {
        const NamedTensors found = files.infer(plan);
        CHECK(found[0].second.equal(expected));
        CHECK(found[1].second.equal(lengths));
        CHECK(files.report.tokens == made);
        CHECK(files.report.passes == passes);  // no group runs after its end
      }
    }
  }

  TEST_CASE("prompts may differ in length: they end where only the pad token follows") {
    const ModelGraph model = decoder();
    const NamedTensors weights = trained(model);
    at::Tensor prompts = at::full({2, 4}, 18, at::kLong);
    prompts[0].narrow(0, 0, 3).copy_(tokens(1, 3)[0]);
    prompts[1][0] = 5;
    Files files({{"tokens", prompts}}, weights, {.new_tokens = 4, .prompt_length = 4, .pad_token = 18});
    files.options.micro_batch = 1;
    const NamedTensors found = files.infer(make_plan({.model = model, .cuts = {5}}));
    CHECK(found[1].second.equal(at::cat({at::full({1}, 7, at::kLong), at::full({1}, 5, at::kLong)})));
    CHECK(found[0].second[0].narrow(0, 0, 7).equal(
        grown(model, weights, {}, "tokens", 9, prompts.narrow(0, 0, 1).narrow(1, 0, 3), 4, 1)[0]));
    CHECK(found[0].second[1].narrow(0, 0, 5).equal(
        grown(model, weights, {}, "tokens", 9, prompts.narrow(0, 1, 1).narrow(1, 0, 1), 4, 1)[0]));
    CHECK(found[0].second[1].narrow(0, 5, 3).eq(18).all().item<bool>());
    prompts[1][0] = 18;
    test::write_tensors(files.options.data, {{"tokens", prompts}});
    CHECK(files.refusal(make_plan({.model = model}), {}).find("sample 1: its prompt has no token but") !=
          std::string::npos);
  }

  TEST_CASE("as many groups are under way as there are workers, and prompts are spread over them") {
    const ModelGraph model = decoder();
    Files files({{"tokens", tokens(8, 3)}}, trained(model), {.new_tokens = 5, .prompt_length = 3});
    std::atomic<int> begun = 0, ended = 0, most = 0;
    files.options.before_op = [&](std::int64_t, WorkerId worker, const plan::Op&) {
      if (worker == WorkerId{2}) ++ended;  // it begins after all that ended before
      if (worker != WorkerId{0}) return;
      const int now = ++begun - ended;
      if (now > most) most = now;
      CHECK(now <= 3);
    };
    files.infer(make_plan({.model = model, .cuts = {4, 9}, .mini_batch = 32}));
    CHECK(files.report.micro_batch == 3);  // not 8, the plan's: 8 prompts for 3 workers
    CHECK(begun == 15);
  }

  TEST_CASE("passes that are complete keep no memory") {
    const TestFolder folder;
    constexpr int kTokens = 20'000;
    run::InferOptions options;
    options.generation = run::GenerationOptions{.new_tokens = kTokens, .start_token = 0};
    const run::SequencePlace place{.length = kTokens + 1, .tokens = 2};
    run::Generation generation(folder.path() / "out", "x", {place, *options.generation, 4, {}}, place, options,
                               4, run::Generation::By::pieces);
    generation.begin(1);
    const at::Tensor logits = at::zeros({4, 1, 2});
    std::size_t before = 0;
    for (run::Step pass = 0; pass < kTokens - 1; ++pass) {
      run::Operation operation;
      operation.step = pass;
      generation.take(operation, 0, logits);
      generation.completed(pass);
      if (pass == kTokens / 4) before = mallinfo2().uordblks;
    }
    CHECK(mallinfo2().uordblks < before + 200'000);
  }

  TEST_CASE("what cannot grow is refused with what can") {
    const ModelGraph model = decoder();
    const plan::Plan plan = make_plan({.model = model});
    const auto refused = [&](const run::GenerationOptions& generation) {
      Files files({{"tokens", tokens(2, 3)}}, trained(model), generation);
      return files.refusal(plan, {});
    };
    CHECK(refused({.new_tokens = 8, .prompt_length = 3}) ==
          "--max-new-tokens 8 after 3: the model's \"tokens\" has 9 positions, which leaves 7");
    CHECK(refused({.new_tokens = 2}) ==
          "how sequences of \"tokens\" begin: give one of --prompt-length (tokens of each sample in the data) "
          "and "
          "--start-token");
    CHECK(refused({.new_tokens = 2, .prompt_length = 3, .end_token = 19}) ==
          "--end-token 19: the model has tokens 0 to 18");
    CHECK(refused({.new_tokens = 2, .start_token = -1}) == "--start-token -1: the model has tokens 0 to 18");
    CHECK(refused({.new_tokens = 2, .prompt_length = 3, .sequence_input = "words"}) ==
          "--sequence-input: model \"" + model.name + "\" has no \"words\" that grows; use tokens");
    CHECK(refused({.new_tokens = 2, .prompt_length = 2})
              .find("samples have the shape [3], the model's input "
                    "\"tokens\" is [2]") != std::string::npos);
    CHECK(refused({.new_tokens = 2, .start_token = 1}) ==
          "nothing else is read from data: give --data synthetic, and with --synthetic-samples the number of "
          "sequences");
    const ModelGraph twin =
        model::build_family("t5_small:layers=1,width=8,heads=2,hidden=16,vocabulary=19,source=5,target=5");
    Files files({{"source", tokens(2, 5)}}, trained(twin), {.new_tokens = 2, .start_token = 1});
    CHECK(files.refusal(make_plan({.model = twin}), {}) ==
          "model \"" + twin.name +
              "\" has several inputs that could grow; choose with --sequence-input one of source, target");
    files.options.generation->sequence_input = "target";
    CHECK(files.refusal(make_plan({.model = twin}), {}) == "");
  }
}

}  // namespace generation_test
