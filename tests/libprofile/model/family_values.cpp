#include "tests/libprofile/model/family_values.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/support/places.h"
#include "tests/support/torch_test.h"

namespace pp::test {
namespace {

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

/// Integers stay below what the model has embeddings or classes for.
std::int64_t integers_of(const ResolvedModel& model, const std::string& name) {
  for (const Layer& layer : model.graph.layers) {
    if (layer.op == "embedding" && layer.inputs.front() == name)
      return std::get<std::int64_t>(layer.attributes.at("num_embeddings"));
  }
  return model.loss.inputs.front().shape.back();
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
    const double sum =
        gradient.to(at::kDouble).mul(numbers("gradient." + name, gradient.sizes().vec())).sum().item<double>();
    // Biases in front of batch norm have zeros, and noise.
    const double size = std::max(gradient.norm().item<double>(), 1e-3 * scale);
    CHECK(std::abs(sum - expected[name].get<double>()) <= tolerance * size);
  }
}

}  // namespace

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

at::Tensor family_data(const ResolvedModel& model, const DataTensor& tensor) {
  Shape shape = tensor.type.shape;
  shape.insert(shape.begin(), kSamples);
  at::Tensor drawn = numbers(tensor.name, shape);
  if (is_floating(tensor.type.dtype)) return drawn;
  return drawn.add(1).div(2).mul(integers_of(model, tensor.name)).to(at::kLong);
}

void check_values(const ModelValues& values, const nlohmann::json& document, double tolerance) {
  const at::Tensor output = values.outputs.front().to(at::kDouble).flatten();
  const auto expected = document["outputs"].get<std::vector<double>>();
  REQUIRE(output.numel() == static_cast<std::int64_t>(expected.size()));
  for (std::size_t k = 0; k < expected.size(); ++k)
    REQUIRE(std::abs(output[static_cast<std::int64_t>(k)].item<double>() - expected[k]) <=
            tolerance * largest(output));
  const double loss = document["loss"];
  CHECK(std::abs(values.loss.item<double>() - loss) <= tolerance * loss);
  check_gradients(values.gradients, document["gradients"], tolerance);
  for (std::size_t i = 0; i < values.steps.size(); ++i) {
    CAPTURE(i);
    const double of_step = document["steps"]["losses"][i];
    CHECK(std::abs(values.steps[i] - of_step) <= tolerance * of_step);
  }
}

std::vector<std::string> decoder_cases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(test_data("families"))) {
    if (nlohmann::json::parse(read_file(file.path())).contains("config"))
      names.push_back(file.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace pp::test
