// Products in float8, mxfloat8 and float4: their rates and casts, what they keep, and what is refused.
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/core/profile.h"
#include "libprofile/estimate/estimate.h"
#include "tests/libprofile/estimate/chains.h"
#include "tests/support/doctest.h"

namespace narrow_test {

using namespace pp;
using namespace pp::profile;
using namespace pp::profile::test;

TEST_SUITE("libprofile/estimate/narrow") {
  TEST_CASE("products of blocks in a narrow type: rates, casts, what is kept, copies of weights") {
    // Two blocks of 8 -> 16 -> 8 between two products in bfloat16; five samples.
    Layer act = layer("block0.act", "relu");
    const ModelGraph graph = chain({linear("first", 8), linear("block0.a", 16), act, linear("block0.b", 8),
                                    linear("block1.a", 16), linear("last", 8)},
                                   {{8}});
    const ResolvedModel model = resolve(graph);
    const WorkOptions wide{.dtype = DType::bfloat16, .micro_batch_size = 5};
    WorkOptions options = wide;
    options.dtype = NarrowType::mxfloat8;
    options.recipe = {.products = NarrowType::mxfloat8, .cast_bytes = 4, .weight_copies = 2};
    const auto narrow = layer_work(model, split_operations(model, 1), options);
    const auto whole = layer_work(model, split_operations(model, 1), wide);
    const double byte = 1 + 1.0 / 32;  // a scale for 32 numbers
    for (const std::size_t l : {1, 3, 4}) {
      INFO(l);
      const double in = l == 3 ? 16 : 8, out = l == 3 ? 8 : 16, weights = 8 * 16, biases = out;
      const auto& forward = narrow[l].forward;
      REQUIRE(forward.size() == 2);
      CHECK(forward[0].bytes == 4 * 5 * in);  // the cast
      CHECK(forward[1].narrow);
      CHECK(forward[1].products == whole[l].forward[0].products);
      CHECK(forward[1].bytes == doctest::Approx(byte * (5 * in + weights + biases) + 2 * 5 * out));
      // The output's gradient is cast once for both products that read it.
      REQUIRE(narrow[l].input_gradient.size() == 2);
      CHECK(narrow[l].input_gradient[0].bytes == 4 * 5 * out);
      CHECK(narrow[l].weight_gradient[0].narrow);
      CHECK(narrow[l].copies == doctest::Approx(2 * byte * (weights + biases)));
      CHECK(narrow[l].saved == doctest::Approx(byte * 5 * in));
    }
    for (const std::size_t l : {0, 5}) {
      CHECK(narrow[l].copies == 0);
      CHECK(sum(narrow[l].forward).bytes == sum(whole[l].forward).bytes);
      CHECK_FALSE(narrow[l].forward[0].narrow);
    }
    // Two products of one input cast it once, and keep one copy.
    ModelGraph pair = chain({linear("first", 8), linear("block0.a", 8), linear("block0.b", 8)}, {{8}});
    pair.layers[2].inputs = {"first"};
    pair.layers.push_back(
        {.name = "block0.sum", .op = "add", .inputs = {"block0.a", "block0.b"}, .attributes = {}});
    pair.outputs = {"block0.sum"};
    const ResolvedModel both = resolve(pair);
    const auto shared = layer_work(both, split_operations(both, 1), options);
    CHECK(shared[1].forward.size() == 2);
    CHECK(shared[2].forward.size() == 1);
    CHECK(shared[2].saved == 0);
    CHECK(shared[2].input_gradient.size() == 2);  // each has a gradient of its own
  }

  TEST_CASE("a profile in a narrow type is one of bfloat16 whose products take that type's rate") {
    DeviceSpec device = plain_device();
    device.types.push_back({NarrowType::float8, 4e12, 1e12, 1, 0});
    TrainerSpec trainer;
    trainer.name = "test";
    trainer.recipes = {{.products = NarrowType::float8, .cast_bytes = 0, .weight_copies = 1}};
    const ModelGraph graph = chain({linear("block0.a", 4096), linear("block0.b", 4096)}, {{4096}});
    const auto estimated = [&](RunType type) {
      return estimate_profile(graph, device, {.micro_batch_sizes = {4096}, .dtype = type, .trainer = trainer});
    };
    const Profile half = estimated(DType::bfloat16), narrow = estimated(NarrowType::float8);
    CHECK(narrow.dtype == DType::bfloat16);
    CHECK(narrow.products == NarrowType::float8);
    CHECK(narrow.device.peak_flops_per_s == 4e12);
    CHECK(narrow.layers[0].parameters == half.layers[0].parameters);
    CHECK(narrow.layers[0].buffers == Bytes(4096 * 4097));
    CHECK(narrow.layers[1].points[0].forward.median.count() ==
          doctest::Approx(half.layers[1].points[0].forward.median.count() / 4));
    CHECK((parse_profile(dump_json(to_json(narrow))) == narrow));
    CHECK_FALSE(to_json(half).contains("products"));
    const auto refused = [&](const ModelGraph& model, RunType type) {
      try {
        estimate_profile(model, device, {.micro_batch_sizes = {1}, .dtype = type, .trainer = trainer});
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    CHECK(refused(chain({linear("a", 3)}, {{4}}), NarrowType::float8) ==
          "products in float8 are those with weights in blocks, such as block3, and the model has none; use "
          "--dtype bfloat16");
    CHECK(refused(graph, NarrowType::float4) ==
          "device plain has no rates for float4, only for float32, bfloat16, float8; use --dtype, or add the "
          "type "
          "to its file");
    device.types.push_back({NarrowType::float4, 8e12, 1e12, 1, 0});
    CHECK(refused(graph, NarrowType::float4) ==
          "trainer test has no recipe for float4; use --trainer nemo, --dtype bfloat16, or add recipes to its "
          "file");
  }
}

}  // namespace narrow_test
