// The built-in families against the models that they are named after, as torchvision, transformers and torch.nn
// compute them (tests/data/families, written by tests/scripts/make_family_values.py, which says what a file
// has). All in float64: kernels of other machines and other orders of addition differ by 1e-12 here, a wrong
// epsilon by 1e-6.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "libprofile/core/file.h"
#include "libprofile/model/families/families.h"
#include "tests/support/model_values.h"
#include "tests/support/torch_test.h"

using namespace pp;

namespace {

constexpr std::int64_t kSamples = 3;

/// The k-th number of a tensor, in [-1, 1).
class Numbers {
 public:
  explicit Numbers(std::string_view name) {
    for (const char c : name) seed_ = (seed_ ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  double operator()(std::uint64_t k) const {
    std::uint64_t z = seed_ + (k + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }

 private:
  std::uint64_t seed_ = 0xCBF29CE484222325;
};

at::Tensor numbers(const std::string& name, const Shape& shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  const Numbers number(name);
  double* values = tensor.mutable_data_ptr<double>();
  for (std::int64_t k = 0; k < tensor.numel(); ++k) values[k] = number(static_cast<std::uint64_t>(k));
  return tensor;
}

at::Tensor initial(const std::string& name, const Shape& shape) {
  at::Tensor drawn = numbers(name, shape);
  if (shape.size() > 1)
    return drawn.mul(std::sqrt(6 / (static_cast<double>(drawn.numel()) / static_cast<double>(shape[0]))));
  const bool around_zero = name.ends_with("bias") || name.ends_with("running_mean");
  return drawn.mul(0.1).add(around_zero ? 0 : 1);
}

/// Integers stay below what the model has embeddings or classes for.
std::int64_t integers_of(const ResolvedModel& model, const std::string& name) {
  for (const Layer& layer : model.graph.layers) {
    if (layer.op == "embedding" && layer.inputs.front() == name)
      return std::get<std::int64_t>(layer.attributes.at("num_embeddings"));
  }
  return model.loss.inputs.front().shape.back();
}

at::Tensor data(const ResolvedModel& model, const DataTensor& tensor) {
  Shape shape = tensor.type.shape;
  shape.insert(shape.begin(), kSamples);
  at::Tensor drawn = numbers(tensor.name, shape);
  if (is_floating(tensor.type.dtype)) return drawn;
  return drawn.add(1).div(2).mul(integers_of(model, tensor.name)).to(at::kLong);
}

double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

void check_gradients(const std::map<std::string, at::Tensor>& found, const nlohmann::json& expected,
                     double tolerance) {
  double scale = 0;
  for (const auto& [name, gradient] : found) scale = std::max(scale, gradient.norm().item<double>());
  CHECK(found.size() == expected.size());
  for (const auto& [name, gradient] : found) {
    CAPTURE(name);
    REQUIRE(expected.contains(name));
    const double sum = gradient.mul(numbers("gradient." + name, gradient.sizes().vec())).sum().item<double>();
    // Biases in front of batch norm have zeros, and noise.
    const double size = std::max(gradient.norm().item<double>(), 1e-3 * scale);
    CHECK(std::abs(sum - expected[name].get<double>()) <= tolerance * size);
  }
}

void check_family(const std::filesystem::path& file) {
  const auto document = nlohmann::json::parse(read_file(file));
  const std::string family = document["family"], real = document["model"];
  CAPTURE(family);
  CAPTURE(real);
  const double tolerance = document["tolerance"];
  const ModelGraph graph = model::build_family(family);
  const ResolvedModel model = resolve(graph);
  const auto batch = [&](const DataTensor& tensor) { return data(model, tensor); };
  const ::test::ModelValues values =
      ::test::model_values(graph, DType::float64, {.weights = initial, .data = batch});

  const at::Tensor output = values.outputs.front().flatten();
  const auto expected = document["outputs"].get<std::vector<double>>();
  REQUIRE(output.numel() == static_cast<std::int64_t>(expected.size()));
  for (std::size_t k = 0; k < expected.size(); ++k)
    REQUIRE(std::abs(output[static_cast<std::int64_t>(k)].item<double>() - expected[k]) <=
            tolerance * largest(output));
  const double loss = document["loss"];
  CHECK(std::abs(values.loss.item<double>() - loss) <= tolerance * loss);
  check_gradients(values.gradients, document["gradients"], tolerance);
}

std::filesystem::path file_of(std::string_view family) {
  return std::filesystem::path(PP_TEST_DATA "/families") / (std::string(family) + ".json");
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
