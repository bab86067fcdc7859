// What Megatron-LM's own examples and conversion scripts give for these families, by hand.
#include "libplan/interop/megatron_model.h"

#include "libplan/interop/megatron_arguments.h"
#include "libplan/interop/trainer_export.h"
#include "tests/libplan/interop/decoders.h"
#include "tests/libplan/interop/exports.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

TEST_SUITE_BEGIN("libplan/interop/megatron_model");

namespace pp::plan {
namespace {

using test::decoder;
using test::DecoderParts;

detail::MegatronModel model_of(const ModelGraph& graph) {
  const ResolvedModel model = resolve(graph);
  return detail::megatron_model(model, detail::block_row_of(model, "test"));
}

/// The arguments behind the sizes and `--untie-embeddings-and-output-weights`.
std::string architecture(const DecoderParts& parts) {
  const detail::MegatronModel model = model_of(decoder(parts));
  for (const std::string& what : model.unsaid) FAIL_CHECK(what);
  return model.arguments.substr(model.arguments.find("--normalization"));
}

std::string unsaid(const ModelGraph& graph) {
  const detail::MegatronModel model = model_of(graph);
  return model.unsaid.empty() ? "nothing" : model.unsaid.front();
}

/// A model of that many blocks.
PlanGraph row_of(int blocks) {
  PlanGraph graph;
  const auto add = [&](const std::string& name) { graph.layers.emplace_back().name = name; };
  add("embed"), add("embed_norm");
  for (int b = 0; b < blocks; ++b)
    add("layers." + std::to_string(b) + ".mix"), add("layers." + std::to_string(b) + ".mlp");
  add("norm"), add("head");
  return graph;
}

const std::string kNoDropout = "--attention-dropout 0\n--hidden-dropout 0\n";

}  // namespace

TEST_CASE("a Llama is said whole") {
  const detail::MegatronModel model = model_of(decoder(test::llama_8b()));
  CHECK(model.unsaid.empty());
  CHECK(model.arguments ==
        "--seq-length 4096\n"
        "--max-position-embeddings 4096\n"
        "--hidden-size 4096\n"
        "--ffn-hidden-size 14336\n"
        "--num-attention-heads 32\n"
        "--group-query-attention\n"
        "--num-query-groups 8\n"
        "--untie-embeddings-and-output-weights\n"
        "--normalization RMSNorm\n"
        "--norm-epsilon 1e-05\n"
        "--swiglu\n"
        "--position-embedding-type rope\n"
        "--rotary-base 500000\n"
        "--disable-bias-linear\n" +
            kNoDropout);
}

TEST_CASE("biases, windows, norms of heads and rotations of other families") {
  const std::string rope = "--position-embedding-type rope\n--rotary-base ";
  const std::string front = "--normalization RMSNorm\n--norm-epsilon 1e-05\n";
  const auto with = [](const std::string& name, Attribute value) {
    DecoderParts parts;
    parts.attention.insert_or_assign(name, std::move(value));
    return parts;
  };
  DecoderParts qwen2;
  qwen2.qkv_bias = true;
  CHECK(architecture(qwen2) ==
        front + "--swiglu\n" + rope + "500000\n--disable-bias-linear\n--add-qkv-bias\n" + kNoDropout);
  // A query sees itself and the three positions to its left.
  const std::string plain = front + "--swiglu\n" + rope + "500000\n--disable-bias-linear\n";
  CHECK(architecture(with("sliding_window", std::int64_t{4})) == plain + "--window-size 3,0\n" + kNoDropout);
  CHECK(architecture(with("sliding_window", std::int64_t{16})) == plain + kNoDropout);  // all of the sequence
  CHECK(architecture(with("norms", true)) ==
        front + "--qk-layernorm\n--swiglu\n" + rope + "500000\n--disable-bias-linear\n" + kNoDropout);
  DecoderParts half = with("rotary_dim", std::int64_t{2});  // of heads of four
  half.head_width = 4;
  CHECK(model_of(decoder(half)).arguments.find("--kv-channels 4\n") != std::string::npos);
  CHECK(architecture(half) ==
        front + "--swiglu\n" + rope + "500000\n--rotary-percent 0.5\n--disable-bias-linear\n" + kNoDropout);
  DecoderParts llama31 = with("rotary_scaling", std::string("llama3"));
  llama31.attention.emplace("rotary_factor", 8.0);
  llama31.attention.emplace("rotary_original_length", std::int64_t{8192});
  CHECK(architecture(llama31) == front + "--swiglu\n" + rope +
                                     "500000\n--use-rope-scaling\n--rope-scaling-factor 8\n"
                                     "--disable-bias-linear\n" +
                                     kNoDropout);
}

TEST_CASE("a GPT has layer norms, GELU, biases, learned positions and dropout") {
  const DecoderParts gpt{.groups = 4,
                         .norm = "layer_norm",
                         .qkv_bias = true,
                         .out_bias = true,
                         .feed_forward_bias = true,
                         .activation = "gelu",
                         .gated = false,
                         .attention = {{"dropout", 0.1}},
                         .positions = 32,
                         .dropout = 0.1,
                         .tied = true};
  const std::string text = model_of(decoder(gpt)).arguments;
  CHECK(text.find("--max-position-embeddings 32\n") != std::string::npos);
  CHECK(text.find("--untie") == std::string::npos);
  CHECK(architecture(gpt) ==
        "--normalization LayerNorm\n--norm-epsilon 1e-05\n--position-embedding-type learned_absolute\n"
        "--attention-dropout 0.1\n--hidden-dropout 0.1\n");
}

TEST_CASE("what no argument says is named") {
  const auto after = [](const std::function<void(DecoderParts&)>& change) {
    DecoderParts parts;
    change(parts);
    return unsaid(decoder(parts));
  };
  CHECK(after([](DecoderParts&) {}) == "nothing");
  CHECK(after([](DecoderParts& p) { p.activation = "gelu_tanh"; }) ==
        "the activation is gelu with a gate, and it has gelu, and silu with a gate");
  CHECK(after([](DecoderParts& p) { p.out_bias = true; }).starts_with("some products have a bias"));
  CHECK(after([](DecoderParts& p) {
          p.attention.emplace("rotary_scaling", std::string("linear"));
        }).starts_with("rotary positions are scaled (linear)"));
  CHECK(after([](DecoderParts& p) {
          p.attention.insert_or_assign("rotary_base", 10000.5);
        }).starts_with("the rotary base is 10000.5"));
  CHECK(after([](DecoderParts& p) { p.attention.emplace("soft_cap", 50.0); }).ends_with("caps its scores"));
  const auto edited = [](const std::function<void(ModelGraph&)>& change) {
    ModelGraph graph = decoder({});
    change(graph);
    return unsaid(graph);
  };
  // Of a block: norm1 0, q k v 1 to 3, attention 4, out 5, sum1 6, norm2 7, gate 8, up 9, act 10, down 11, sum2
  // 12; in front of the first an embedding.
  CHECK(edited([](ModelGraph& g) {
          g.layers[1 + 13 + 4].attributes.emplace("sliding_window", std::int64_t{4});
        }).ends_with("layers.0.attention and layers.1.attention have other attributes"));
  CHECK(edited([](ModelGraph& g) {
          g.layers.push_back({"logits", "soft_cap", {"head"}, {{"cap", 30.0}}});
          g.outputs = {"logits"};
          g.loss->inputs.front() = "logits";
        }).ends_with("logits, soft_cap: nothing is expected behind the head"));
}

TEST_CASE("TorchTitan's flavors are found by all that they say, and not by the family's name") {
  const auto flavor = [](const DecoderParts& parts) {
    const int cut = 1 + 13 * (parts.blocks / 2);
    const Plan plan = ::make_plan(
        {.model = decoder(parts), .cuts = {cut}, .schedule = "hybrid", .optimizer = OptimizerName::adamw});
    const TrainerExport out = export_torchtitan(plan, Losses::refuse);
    const std::string text = test::file(out, "plan_config.py");
    const std::size_t at = text.find("model_registry(\"") + 16;
    const std::string found = text.substr(at, text.find('"', at) - at);
    CHECK(out.warnings.empty() == (found != "FILL_IN"));
    return found;
  };
  CHECK(flavor(test::llama_8b()) == "8B");
  DecoderParts llama_70b = test::llama_8b();
  llama_70b.blocks = 80, llama_70b.width = 8192, llama_70b.heads = 64, llama_70b.hidden = 28672;
  CHECK(flavor(llama_70b) == "70B");
  const auto changed = [&](const std::function<void(DecoderParts&)>& change) {
    DecoderParts parts = test::llama_8b();
    change(parts);
    return flavor(parts);
  };
  CHECK(changed([](DecoderParts& p) { p.blocks = 31; }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.hidden = 11008; }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.vocabulary = 32000; }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.qkv_bias = true; }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.attention.emplace("norms", true); }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.attention.insert_or_assign("rotary_base", 10000.0); }) == "FILL_IN");
  CHECK(changed([](DecoderParts& p) { p.attention.emplace("sliding_window", std::int64_t{1024}); }) ==
        "FILL_IN");
}

TEST_CASE("a layout is read as Megatron reads it: cuts stand where its stages begin") {
  const PlanGraph graph = row_of(6);  // embedding and its norm, six blocks of two layers, a norm and the head
  const auto cuts = [&](const std::string& layout) { return cuts_of_layout(graph, 0, layout); };
  CHECK(cuts("Et*3|t*3L") == std::vector{8});
  CHECK(cuts("Ettt|tttL") == std::vector{8});
  CHECK(cuts("Et|(tt|)*2,t|L") == std::vector{4, 8, 12, 14});
  CHECK(cuts("E|(t|)*6L") == std::vector{2, 4, 6, 8, 10, 12, 14});
  CHECK(cuts("E, t*2, (|tt)*2, L") == std::vector{6, 10});
  CHECK(cuts("Et*6L").empty());
  // The last two predict further tokens.
  const auto predicted = [&](const std::string& layout) { return cuts_of_layout(graph, 2, layout); };
  CHECK(predicted("Et|(tt|)tmmL") == std::vector{4, 8});
  CHECK(predicted("Et*4|mm|L") == std::vector{10, 14});
  CHECK(predicted("Et*4m|m|L") == std::vector{12, 14});
}

TEST_CASE("a norm in front of multi-token prediction is of the stage in front of it") {
  PlanGraph graph = row_of(3);  // two blocks, a norm, a third
  graph.layers.insert(graph.layers.begin() + 6,
                      GraphLayer{.name = "last_norm", .producers = {}, .consumers = {}});
  CHECK(cuts_of_layout(graph, 1, "Et|t|m|L") == std::vector{4, 7, 9});
}

TEST_CASE("what is no layout, or one of another model, is refused with the place") {
  const auto says = [](const std::string& layout, const std::string& why) {
    CHECK_THROWS_WITH_AS(cuts_of_layout(row_of(6), 0, layout), ("--layout " + layout + ": " + why).c_str(),
                         Error);
  };
  says("Et*5|L", "it has 5 blocks, and the profile's model 6");
  says("Et*3||t*3L", "a stage has no layer");
  says("Et*6L|", "a stage has no layer");
  says("Et*3|t*3m|L",
       "it has 1 m, blocks of multi-token prediction, and the profile's model 0; estimate one of "
       "config.json:mtp=1");
  says("t*3|t*3L", "E stands first, L last, between them t, and m behind all t");
  says("Et*3|mt*3L", "E stands first, L last, between them t, and m behind all t");
  says("Et*3x", "'x' is none of E, t, L, |, ( ), *n");
  says("Et*|L", "behind * stands a number from 1 to 10000");
  says("E(t|", "a bracket is not closed");
  says("E((t)*2|)*3L", "Megatron knows no brackets within brackets");
  says("Et*9999999999L", "behind * stands a number from 1 to 10000");
  says("E(t*9000)*9000L", "more than 10000 letters");
}

}  // namespace pp::plan

TEST_SUITE_END();
