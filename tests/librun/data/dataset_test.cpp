#include "librun/data/dataset.h"

#include <ATen/Parallel.h>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"
#include "librun/data/synthetic.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/support/torch_test.h"

namespace dataset_test {

using namespace pp;
using namespace pp::run;

namespace {

// Two images of 5 bytes and their labels, for a model with inputs [5].
void write_images(const TestFolder& folder, const char* subset, std::string labels) {
  const std::string name(subset);
  folder.write(name + "-images.idx", idx_bytes(ElementType::uint8, {2, 1, 5},
                                               std::string("\x00\x33\x66\xcc\xff\x01\x02\x03\x04\x05", 10)));
  folder.write(name + "-labels.idx", idx_bytes(ElementType::uint8, {2}, labels));
}

std::unique_ptr<const Dataset> open_training(const ResolvedModel& model, const TestFolder& folder,
                                             const TensorOptions& options = {}) {
  return open_records(model, open_data({.model = model, .path = folder.path()}).training, options);
}

constexpr TensorSource kInput{TensorSource::Kind::input, 0, 0}, kTarget{TensorSource::Kind::target, 0, 0};

}  // namespace

TEST_SUITE("librun/data/dataset") {
  TEST_CASE("integer images are divided by the largest value of their type") {
    const TestFolder folder;
    write_images(folder, "train", std::string("\x02\x00", 2));
    const ResolvedModel model = resolve(pp::test::mlp(1));
    const auto data = open_training(model, folder);
    CHECK(data->samples() == 2);
    CHECK_FALSE(data->in_memory());
    const std::vector<std::int64_t> order{1, 0};
    const at::Tensor images = data->rows(kInput, order);
    REQUIRE(images.sizes() == at::IntArrayRef{2, 5});
    CHECK((images.scalar_type() == at::kFloat));
    // 0x33 = 51 and 51/255 = 0.2, 0xcc = 0.8, 0xff = 1; sample 1 stands first.
    CHECK(images[1][1].item<float>() == doctest::Approx(0.2));
    CHECK(images[1][3].item<float>() == doctest::Approx(0.8));
    CHECK(images[1][4].item<float>() == doctest::Approx(1));
    CHECK(images[0][4].item<float>() == doctest::Approx(5.0 / 255));
    const at::Tensor labels = data->rows(kTarget, order);
    CHECK((labels.scalar_type() == at::kLong));
    CHECK(labels[0].item<std::int64_t>() == 0);
    CHECK(labels[1].item<std::int64_t>() == 2);
  }

  TEST_CASE("threads share the rows of a micro-batch") {
    constexpr std::int64_t kPixels = 200'000, kImages = 9;
    ModelGraph graph = pp::test::mlp(1);
    graph.inputs.front().type.shape = {kPixels};
    std::string pixels;
    for (std::int64_t i = 0; i < kImages * kPixels; ++i) pixels.push_back(static_cast<char>(i % 253));
    const TestFolder folder;
    folder.write("train-images.idx", idx_bytes(ElementType::uint8, {kImages, 1, kPixels}, pixels));
    folder.write("train-labels.idx", idx_bytes(ElementType::uint8, {kImages}, std::string(kImages, '\1')));
    const auto data = open_training(resolve(graph), folder, {DType::float32, 1.0});
    const std::vector<std::int64_t> order{8, 2, 3, 0, 7, 1, 6};
    const int threads = at::get_num_threads();
    at::set_num_threads(3);
    const at::Tensor images = data->rows(kInput, order);
    at::set_num_threads(threads);
    for (std::size_t row = 0; row < order.size(); ++row) {
      const at::Tensor image = images[static_cast<std::int64_t>(row)];
      for (const std::int64_t pixel : {std::int64_t{0}, kPixels / 2, kPixels - 1})
        CHECK(image[pixel].item<double>() == static_cast<double>((order[row] * kPixels + pixel) % 253));
    }
  }

  TEST_CASE("a scale takes the place of the type's maximum, the dtype that of the model's") {
    const TestFolder folder;
    write_images(folder, "train", std::string("\x01\x00", 2));
    const auto data = open_training(resolve(pp::test::mlp(1)), folder, {DType::float64, 0.5});
    const at::Tensor images = data->rows(kInput, std::vector<std::int64_t>{0});
    CHECK((images.scalar_type() == at::kDouble));
    CHECK(images[0][1].item<double>() == 25.5);
  }

  TEST_CASE("synthetic data depend on the seed alone; training and test samples differ") {
    const ResolvedModel model = resolve(pp::test::residual_net());
    const MemoryDataset first = make_synthetic(model, 8, 3, Subset::training, DType::float32);
    const MemoryDataset same = make_synthetic(model, 8, 3, Subset::training, DType::float32);
    const MemoryDataset test_set = make_synthetic(model, 8, 3, Subset::test, DType::float32);
    const MemoryDataset other = make_synthetic(model, 8, 4, Subset::training, DType::float32);
    CHECK(first.inputs[0].values.equal(same.inputs[0].values));
    CHECK(first.targets[0].values.equal(same.targets[0].values));
    CHECK_FALSE(first.inputs[0].values.equal(test_set.inputs[0].values));
    CHECK_FALSE(first.inputs[0].values.equal(other.inputs[0].values));
    CHECK(first.targets[0].values.lt(3).all().item<bool>());
    CHECK(first.targets[0].values.ge(0).all().item<bool>());
  }

  TEST_CASE("synthetic sequences mostly follow their rule, and the target is the input moved on by one") {
    ModelGraph graph;
    graph.name = "language";
    graph.inputs = {{"tokens", {{12}, DType::int64}}};
    graph.targets = {{"next", {{12}, DType::int64}}};
    graph.layers = {{"embedding",
                     "embedding",
                     {"tokens"},
                     {{"num_embeddings", std::int64_t{20}}, {"embedding_dim", std::int64_t{4}}},
                     ""},
                    {"head", "linear", {"embedding"}, {{"out_features", std::int64_t{20}}}, ""}};
    graph.outputs = {"head"};
    graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
    const MemoryDataset data = make_synthetic(resolve(graph), 50, 1, Subset::training, DType::float32);
    const at::Tensor tokens = data.inputs[0].values, next = data.targets[0].values;
    REQUIRE(tokens.sizes() == at::IntArrayRef{50, 12});
    CHECK(tokens.narrow(1, 1, 11).equal(next.narrow(1, 0, 11)));
    CHECK(tokens.max().item<std::int64_t>() < 20);
    // One token in ten is random (and one in twenty of those follows by chance): 0.905 of 600, five deviations
    // are 0.06.
    const double share = next.eq(tokens.mul(5).add(3).remainder(20)).to(at::kDouble).mean().item<double>();
    CHECK(share > 0.84);
    CHECK(share < 0.97);
  }
}

}  // namespace dataset_test
