// Calls of LibTorch as layers: what they compute, and which are refused before anything runs.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/parameters.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"
#include "tests/support/torch_test.h"

namespace aten_test {

using namespace pp;

namespace {

/// A model of one call on a float [4] (x) and an int64 [2] (i).
ResolvedModel one_call(const std::string& call, const std::string& inputs = R"(["x"])") {
  return resolve(parse_model(R"({ "format": "pp.model", "version": 1, "name": "one",
    "inputs": [{ "name": "x", "shape": [4] }, { "name": "i", "dtype": "int64", "shape": [2] }],
    "layers": [{ "name": "it", "op": "aten", "inputs": )" +
                             inputs + R"(, "call": )" + call + R"( }], "outputs": ["it"] })"));
}

std::string written(const std::string& target, const std::string& arguments,
                    const std::string& outputs = R"([{ "shape": [4] }])", const std::string& more = "") {
  return R"({ "target": ")" + target + R"(", "arguments": )" + arguments + R"(, "outputs": )" + outputs + more +
         " }";
}

std::string refusal(const std::string& call, const std::string& inputs = R"(["x"])") {
  const ResolvedModel model = one_call(call, inputs);
  try {
    model::check_bindable(model);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "";
}

model::Tensors run(const ResolvedModel& model, const std::vector<at::Tensor>& inputs,
                   const std::vector<at::Tensor>& weights = {}) {
  model::LayerContext context;
  return model::bind_layer(model, 0).forward(inputs, weights, context);
}

}  // namespace

TEST_SUITE("libprofile/model/aten") {
  TEST_CASE(
      "a call computes what LibTorch does, with defaults, numbers for tensors and the batch in integers") {
    const at::Tensor x = at::rand({3, 4});
    const std::string self = R"("self": { "input": 0 })";
    CHECK(run(one_call(written("aten::add.Tensor", "{" + self + R"(, "other": 2, "alpha": 0.5 })")), {x})[0]
              .equal(x.add(2, 0.5)));
    CHECK(run(one_call(written("aten::gelu", "{" + self + R"(, "approximate": "tanh" })")), {x})[0].equal(
        at::gelu(x, "tanh")));
    const ResolvedModel viewed = one_call(
        written("aten::view", "{" + self + R"(, "size": [{ "batch": [1, 0] }, 2, { "batch": [0, 2] }] })",
                R"([{ "shape": [2, 2] }])"));
    CHECK(run(viewed, {x})[0].equal(x.view({3, 2, 2})));
    const ResolvedModel clamped =
        one_call(written("aten::clamp", "{" + self + R"(, "min": { "number": "-inf" }, "max": 0.5 })"));
    CHECK(run(clamped, {x})[0].equal(x.clamp_max(0.5)));
    const ResolvedModel halves =
        one_call(written("aten::split.Tensor", "{" + self + R"(, "split_size": 2, "dim": 1 })",
                         R"([{ "shape": [2] }, { "shape": [2] }])"));
    const model::Tensors parts = run(halves, {x});
    REQUIRE(parts.size() == 2);
    CHECK(parts[1].equal(x.narrow(1, 2, 2)));
  }

  TEST_CASE("an inner tensor may have the batch in any dimension") {
    const auto model = [](const std::string& batch_dim) {
      return resolve(parse_model(R"({ "format": "pp.model", "version": 1, "name": "turned",
        "inputs": [{ "name": "x", "shape": [4, 5] }],
        "layers": [{ "name": "it", "op": "graph", "inputs": ["x"], "outputs": ["back"], "nodes": [
          { "name": "turn", "op": "aten", "inputs": ["x"], "call": { "target": "aten::permute",
            "arguments": { "self": { "input": 0 }, "dims": [1, 0, 2] }, "outputs": [{ "shape": [4, 5], "batch_dim": )" +
                                 batch_dim + R"( }] } },
          { "name": "back", "op": "aten", "inputs": ["turn"], "call": { "target": "aten::transpose.int",
            "arguments": { "self": { "input": 0 }, "dim0": 0, "dim1": 1 }, "outputs": [{ "shape": [4, 5] }] } }] }],
        "outputs": ["it"] })"));
    };
    const at::Tensor x = at::rand({3, 4, 5});
    CHECK(run(model("1"), {x})[0].equal(x));
    try {
      model::check_bindable(model("2"));
      FAIL("bound");
    } catch (const Error& error) {
      CHECK(std::string(error.what())
                .find("is Float [4, 2, 5] for 2 samples, the model has recorded float32 [4, 5, b]") !=
            std::string::npos);
    }
  }

  TEST_CASE("precise calls compute in float32 in a bfloat16 run, what leaves the layer is bfloat16") {
    // bfloat16 has 8 bits: 1 + 2^-10 is 1 there, so only precise calls find the 2^-10 that was added.
    const auto model = [](const std::string& precision) {
      const auto node = [&](const std::string& name, const std::string& target, const std::string& inputs,
                            const std::string& other) {
        return R"({ "name": ")" + name + R"(", "op": "aten", "inputs": )" + inputs +
               R"(, "call": { "target": ")" + target +
               R"(", "arguments": { "self": { "input": 0 }, "other": )" + other +
               R"( }, "outputs": [{ "shape": [4] }])" + precision + " } }";
      };
      return resolve(parse_model(R"({ "format": "pp.model", "version": 1, "name": "island",
        "inputs": [{ "name": "x", "shape": [4] }],
        "layers": [{ "name": "it", "op": "graph", "inputs": ["x"], "outputs": ["less"], "nodes": [)" +
                                 node("more", "aten::add.Scalar", R"(["x"])", "0.0009765625") + ", " +
                                 node("less", "aten::sub.Tensor", R"(["more", "x"])", R"({ "input": 1 })") +
                                 R"(] }], "outputs": ["it"] })"));
    };
    const auto found = [&](const std::string& precision, at::ScalarType type) {
      model::LayerContext context;
      context.dtype = type;
      const at::Tensor x = at::ones({3, 4}, type);
      const at::Tensor made = model::bind_layer(model(precision), 0).forward(std::vector{x}, {}, context)[0];
      CHECK((made.scalar_type() == type));
      return made.to(at::kDouble)[0][0].item<double>();
    };
    const std::string precise = R"(, "precision": "float32")";
    CHECK(found("", at::kBFloat16) == 0);
    CHECK(found(precise, at::kBFloat16) == 0.0009765625);
    CHECK(found(precise, at::kDouble) == 0.0009765625);
    const ResolvedModel island = model(precise), plain = model("");
    CHECK(to_json(*island.graph.layers[0].nodes[0].call)["precision"] == "float32");
    CHECK_FALSE(to_json(*plain.graph.layers[0].nodes[0].call).contains("precision"));
    CHECK_THROWS_WITH_AS(model(R"(, "precision": "float64")"), doctest::Contains("/precision: must be"), Error);
  }

  TEST_CASE("a loss of calls is float32 in a bfloat16 run") {
    const ResolvedModel model = resolve(parse_model(R"({ "format": "pp.model", "version": 1, "name": "calls",
        "inputs": [{ "name": "x", "shape": [50] }], "targets": [{ "name": "y", "dtype": "int64", "shape": [] }],
        "layers": [{ "name": "scale", "op": "scale", "inputs": ["x"], "attributes": { "factor": 2.0 } }],
        "outputs": ["scale"],
        "loss": { "op": "graph", "inputs": ["scale", "y"], "outputs": ["more"], "nodes": [
          { "name": "ce", "op": "aten", "inputs": ["scale", "y"], "call": { "target": "aten::cross_entropy_loss",
            "arguments": { "self": { "input": 0 }, "target": { "input": 1 } }, "outputs": [{ "shape": [], "rows": 0 }] } },
          { "name": "more", "op": "aten", "inputs": ["ce"], "call": { "target": "aten::add.Scalar",
            "arguments": { "self": { "input": 0 }, "other": 0.0009765625 }, "outputs": [{ "shape": [], "rows": 0 }] } }] } })"));
    const at::Tensor x = at::rand({3, 50}).mul(9).to(at::kBFloat16), y = at::arange(3);
    model::LayerContext context;
    context.dtype = at::kBFloat16;
    const at::Tensor loss = model::bind_loss(model).forward(std::vector{x, y}, {}, context)[0];
    CHECK((loss.scalar_type() == at::kFloat));
    CHECK(loss.equal(at::cross_entropy_loss(x.to(at::kFloat), y).add(0.0009765625)));
  }

  TEST_CASE("constants and parameters enter by name, types follow the run") {
    const ResolvedModel model = one_call(written(
        "aten::addcmul",
        R"({ "self": { "input": 0 }, "tensor1": { "parameter": "w" }, "tensor2": { "constant": "c" } })",
        R"([{ "shape": [4] }])",
        R"(, "parameters": [{ "name": "w", "shape": [4] }],
                     "constants": [{ "name": "c", "shape": [4], "values": [1, 2, 3, { "number": "inf" }] }])"));
    const at::Tensor x = at::rand({2, 4}, at::kDouble), w = at::rand({4}, at::kDouble);
    model::LayerContext context;
    context.dtype = at::kDouble;
    const at::Tensor y = model::bind_layer(model, 0).forward(std::vector{x}, std::vector{w}, context)[0];
    CHECK((y.scalar_type() == at::kDouble));
    CHECK(y.narrow(1, 0, 3).equal(x.narrow(1, 0, 3).addcmul(w.narrow(0, 0, 3), at::arange(1, 4, at::kDouble))));
    CHECK(y.select(1, 3).isinf().all().item<bool>());
  }

  TEST_CASE("what a model may not call is refused when it is bound, by name and with the reason") {
    const std::string self = R"({ "self": { "input": 0 } })";
    const auto of = [&](const std::string& target, const std::string& arguments) {
      return refusal(written(target, arguments));
    };
    const std::string it = "layer \"it\" (aten): ";
    CHECK(of("aten::nonsense", self) ==
          it + "aten::nonsense: LibTorch has no such operation; mind the overload, as in aten::add.Tensor");
    CHECK(of("prims::add", self) == it + "prims::add: only operations of aten:: can be called");
    CHECK(of("aten::relu_", self) ==
          it + "aten::relu_: writes to its arguments; call its twin that returns a new tensor");
    CHECK(of("aten::relu.out", R"({ "self": { "input": 0 }, "out": { "input": 0 } })")
              .find("writes to its arguments") != std::string::npos);
    CHECK(of("aten::rand_like", self).find("draws random numbers") != std::string::npos);
    CHECK(of("aten::dropout", R"({ "input": { "input": 0 }, "p": 0.5, "train": true })")
              .find("draws random numbers") != std::string::npos);
    CHECK(of("aten::nonzero", self).find("shapes that depend on the data") != std::string::npos);
    CHECK(of("aten::is_complex", self).find("returns no tensors") != std::string::npos);
    CHECK(of("aten::empty_like", self).find("has effects or takes time") != std::string::npos);
    CHECK(
        of("aten::from_file", R"({ "filename": "/etc/passwd", "size": { "input": 0 } })").find("has effects") !=
        std::string::npos);
    CHECK(of("aten::_softmax_backward_data", self).find("is internal to LibTorch") != std::string::npos);
    CHECK(of("aten::gelu", R"({ "self": { "input": 0 }, "approximate": 1 })") ==
          it + "argument \"approximate\" (str): must be a string");
    CHECK(of("aten::slow_conv3d", self).find("is internal to LibTorch") != std::string::npos);
    CHECK(of("aten::native_channel_shuffle", R"({ "self": { "input": 0 }, "groups": 0 })") ==
          it + "argument \"groups\" (SymInt): must be 1 or more, not 0");
    // LibTorch takes the absolute value, which this number has none of, and halves it until it is 0.
    CHECK(of("aten::matrix_power", R"({ "self": { "input": 0 }, "n": -9223372036854775808 })") ==
          it + "argument \"n\" (int): must be more than -9223372036854775808");
    CHECK(of("aten::special_legendre_polynomial_p.n_scalar", R"({ "x": { "input": 0 }, "n": 1000000000000 })")
              .find("a model may not call it") != std::string::npos);
    CHECK(of("aten::avg_pool1d", R"({ "self": { "input": 0 }, "kernel_size": [] })") ==
          it + "argument \"kernel_size\" (int[]): must be a list of 1");
    CHECK(of("aten::relu", R"({ "self": { "input": 0 }, "inplace": true })") ==
          it + "there is no argument \"inplace\"; use self");
    CHECK(of("aten::add.Tensor", self) == it + "argument \"other\" (Tensor): is missing and has no default");
    CHECK(of("aten::zeros_like", R"({ "self": { "input": 0 }, "device": "cuda" })") ==
          it + "argument \"device\" (Device?): is the device of the run; leave it out");
    CHECK(of("aten::softmax.int", R"({ "self": { "input": 0 }, "dim": null })") ==
          it + "argument \"dim\" (int): cannot be null");
    CHECK(of("aten::batch_norm",
             R"({ "input": { "input": 0 }, "weight": null, "bias": null, "running_mean": { "input": 0 },
                  "running_var": null, "training": true, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": false })")
              .find("updates running statistics") != std::string::npos);
  }

  TEST_CASE("masks are no indices, integers are") {
    const std::string by_index = R"({ "self": { "constant": "t" }, "indices": [{ "input": 0 }] })";
    const std::string table =
        R"(, "constants": [{ "name": "t", "shape": [3, 2], "values": [1, 2, 3, 4, 5, 6] }])";
    const ResolvedModel model =
        one_call(written("aten::index.Tensor", by_index, R"([{ "shape": [2, 2] }])", table), R"(["i"])");
    const at::Tensor i = at::ones({1, 2}, at::kLong);
    CHECK(run(model, {i})[0].flatten().equal(at::arange(3, 5, at::kFloat).repeat(2)));
    CHECK(
        refusal(written("aten::index.Tensor", R"({ "self": { "input": 0 }, "indices": [{ "constant": "m" }] })",
                        R"([{ "shape": [4] }])",
                        R"(, "constants": [{ "name": "m", "dtype": "bool", "shape": [1], "values": [1] }])"))
            .find("shapes that depend on the data") != std::string::npos);
  }

  TEST_CASE("shapes that LibTorch tells beforehand are compared before anything is asked for") {
    const std::string huge = R"({ "self": { "input": 0 }, "size": [1000000000000] })";
    CHECK(
        refusal(written("aten::new_zeros", huge, R"([{ "shape": [4], "rows": 1 }])")) ==
        "layer \"it\" (aten): aten::new_zeros: output 0 is Float [1000000000000] for 2 samples, the model has "
        "recorded float32 [b, 4]; export the model again");
    CHECK(refusal(
              written("aten::view", R"({ "self": { "input": 0 }, "size": [-1, 3] })", R"([{ "shape": [3] }])"))
              .find("LibTorch refuses the call: shape '[-1, 3]' is invalid for input of size 8") !=
          std::string::npos);
    // Found by fuzz_imported: an error of the standard library.
    CHECK(refusal(written("aten::linalg_tensorsolve", R"({ "self": -1, "other": { "input": 0 } })"))
              .find("LibTorch refuses the call: ") != std::string::npos);
    // For two samples it fits, for three it does not.
    CHECK(refusal(written("aten::view", R"({ "self": { "input": 0 }, "size": [2, 4] })")) != "");
  }

  TEST_CASE("where LibTorch cannot tell shapes, integers are bounded by the sizes around them") {
    const auto rolled = [](const std::string& shift) {
      return refusal(
          written("aten::roll", R"({ "self": { "input": 0 }, "dims": [1], "shifts": [)" + shift + "] }"));
    };
    CHECK(rolled("1") == "");
    CHECK(rolled("1000000") ==
          "layer \"it\" (aten): aten::roll: the integer 1000000 stands in its arguments; for tensors of these "
          "sizes "
          "at most 64");
  }

  TEST_CASE("a result that is not the recorded one ends the run with the layer") {
    const ResolvedModel model = one_call(written(
        "aten::where.ScalarOther",
        R"({ "condition": { "constant": "m" }, "self": { "input": 0 }, "other": 0 })", R"([{ "shape": [4] }])",
        R"(, "constants": [{ "name": "m", "dtype": "bool", "shape": [2, 1, 1],
                                                      "values": [0, 1] }])"));
    const model::Segment segment(model, {0}, false);
    const std::vector<at::Tensor> x{at::rand({3, 4})};
    try {
      segment.forward(segment.initial_weights(1, DType::float32), x, {});
      FAIL("ran");
    } catch (const Error& error) {
      CHECK(
          error.what() ==
          std::string(
              "layer \"it\" (aten): output 0 is Float [2, 3, 4] for 3 samples, the model has recorded float32 "
              "[b, 4]; "
              "export the model again"));
    }
  }

  TEST_CASE("parameters of calls start as weights of products, norms or biases would") {
    const auto drawn = [](const std::string& name, const std::string& shape) {
      return model::initial_parameter(
          one_call(written("aten::mul.Tensor",
                           R"({ "self": { "input": 0 }, "other": { "parameter": ")" + name + "\" } }",
                           R"([{ "shape": [4] }])",
                           R"(, "parameters": [{ "name": ")" + name + R"(", "shape": )" + shape + " }]")),
          0, 0, 1, DType::float32);
    };
    CHECK(drawn("weight", "[4]").equal(at::ones({4})));
    CHECK(drawn("bias", "[4]").count_nonzero().item<std::int64_t>() == 0);
    const at::Tensor table = drawn("table", "[1000, 4]");
    // 4000 draws: mean within 4 standard errors, deviation within 5 %.
    CHECK(std::abs(table.mean().item<double>()) < 4 * 0.02 / std::sqrt(4000.0));
    CHECK(table.std().item<double>() == doctest::Approx(0.02).epsilon(0.05));
  }
}

}  // namespace aten_test
