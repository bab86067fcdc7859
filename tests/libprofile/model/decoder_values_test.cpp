// Decoders from Hugging Face's config.json against what transformers 5 computes for the same one
// (tests/data/families, written by tests/scripts/make_decoder_values.py, which says what a file has), relative
// to the largest logit, the loss, a gradient's size.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/file.h"
#include "libprofile/model/families/hugging_face.h"
#include "tests/libprofile/model/family_values.h"
#include "tests/libprofile/model/harness.h"
#include "tests/support/places.h"
#include "tests/support/torch_test.h"

namespace decoder_values_test {

using namespace pp;

namespace {

Json document_of(const std::string& name) {
  return parse_json(read_file(pp::test::test_data("families/" + name + ".json")));
}

/// `tolerance`: at least.
void check_case(const std::string& name, DType dtype, double tolerance) {
  CAPTURE(name);
  const Json document = document_of(name);
  tolerance = std::max(tolerance, document["tolerance"].get<double>());
  const ModelGraph graph =
      model::build_hugging_face(document["config"], document["arguments"].get<std::string>());
  const ResolvedModel model = resolve(graph);
  const auto batch = [&](const DataTensor& tensor) { return pp::test::family_data(model, tensor); };
  pp::test::GivenTensors given{.weights = pp::test::initial, .data = batch};
  // In float32 a rounding may choose another expert.
  if (dtype == DType::float64 && document.contains("steps")) {
    given.steps = static_cast<int>(document["steps"]["losses"].size());
    given.rate = document["steps"]["rate"];
  }
  check_values(pp::test::model_values(graph, dtype, given), nlohmann::json(document), tolerance);
}

}  // namespace

TEST_SUITE("libprofile/model/decoder_values") {
  TEST_CASE("logits, loss and all gradients in float64, of mixtures also ten steps") {
    for (const std::string& name : pp::test::decoder_cases()) check_case(name, DType::float64, 0);
  }
  TEST_CASE("logits, loss and all gradients in float32") {
    for (const std::string& name : pp::test::decoder_cases()) check_case(name, DType::float32, 2e-5);
  }

  TEST_CASE("each begins near the loss of one who knows nothing, tied and not") {
    for (const std::string& name : pp::test::decoder_cases()) {
      CAPTURE(name);
      Json config = document_of(name)["config"];
      config["vocab_size"] = 16384;
      for (const bool tied : {false, true}) {
        config["tie_word_embeddings"] = tied;
        CHECK(model::test::initial_loss(model::build_hugging_face(config, "sequence=12")) ==
              doctest::Approx(std::log(16384.0)).epsilon(0.05));
      }
    }
  }

  TEST_CASE("what transformers 5 writes of a configuration is the same model") {
    for (const std::string& name : pp::test::decoder_cases()) {
      CAPTURE(name);
      const Json document = document_of(name);
      const std::string arguments = document["arguments"].get<std::string>();
      CHECK((model::build_hugging_face(document["saved"], arguments) ==
             model::build_hugging_face(document["config"], arguments)));
    }
  }
}

}  // namespace decoder_values_test
