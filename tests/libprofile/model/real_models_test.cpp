// The built-in families against the models that they are named after, as torchvision, transformers and torch.nn
// compute them (tests/data/families, written by tests/scripts/make_family_values.py, which says what a file
// has). All in float64: kernels of other machines and other orders of addition differ by 1e-12 here, a wrong
// epsilon by 1e-6.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "libprofile/core/file.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/model/family_values.h"
#include "tests/support/places.h"
#include "tests/support/torch_test.h"

namespace real_models_test {

using namespace pp;

namespace {

void check_family(const std::filesystem::path& file) {
  const auto document = nlohmann::json::parse(read_file(file));
  const std::string family = document["family"], real = document["model"];
  CAPTURE(family);
  CAPTURE(real);
  const double tolerance = document["tolerance"];
  const ModelGraph graph = model::build_family(family);
  const ResolvedModel model = resolve(graph);
  const auto batch = [&](const DataTensor& tensor) { return pp::test::family_data(model, tensor); };
  check_values(pp::test::model_values(graph, DType::float64, {.weights = pp::test::initial, .data = batch}),
               document, tolerance);
}

std::filesystem::path file_of(std::string_view family) {
  return pp::test::test_data("families/" + std::string(family) + ".json");
}

}  // namespace

TEST_SUITE("libprofile/model/real_models") {
  TEST_CASE("outputs, loss and gradients of torchvision's classifiers") {
    for (const char* family : {"alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "squeezenet1_0", "squeezenet1_1",
                               "mobilenet_v2", "inception_v3"})
      check_family(file_of(family));
  }
  TEST_CASE("outputs, loss and gradients of torchvision's networks of many blocks") {
    for (const char* family : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50",
                               "resnext101", "wide_resnet50", "wide_resnet101", "densenet121"})
      check_family(file_of(family));
  }
  TEST_CASE("outputs, loss and gradients of the transformers of Hugging Face and torch.nn") {
    for (const char* family : {"transformer", "transformer_encoder", "bert_base", "gpt2", "t5_small"})
      check_family(file_of(family));
  }

  TEST_CASE("every family is compared, but for other sizes of one, and those that no package has") {
    // The U-Net and AmoebaNet-D are GPipe's, EAST, S2VT and the AWD-LSTM their papers', GNMT MLPerf's.
    const std::set<std::string_view> nowhere{"mlp",  "lenet5", "amoebanet_d", "unet",
                                             "east", "gnmt",   "s2vt",        "awd_lstm"};
    for (const model::FamilyRow& row : model::family_table()) {
      CAPTURE(row.name);
      const bool other_size = row.name.starts_with("gpt2_") || row.name.starts_with("bert_");
      CHECK((std::filesystem::exists(file_of(row.name)) || other_size || nowhere.contains(row.name)));
    }
  }
}

}  // namespace real_models_test
