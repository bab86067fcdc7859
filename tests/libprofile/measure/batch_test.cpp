#include "libprofile/measure/batch_source.h"

#include <ATen/ops/equal.h>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace pp::profile::batch_test {
namespace {

using model::test::GraphBuilder;
using model::test::whole;

constexpr TensorSource kInput{.kind = TensorSource::Kind::input};
constexpr TensorSource kTarget{.kind = TensorSource::Kind::target};

GraphBuilder embedded() {
  return GraphBuilder()
      .input("tokens", {3}, DType::int64)
      .layer("embedding", "embedding", {"tokens"},
             {{"num_embeddings", whole(11)}, {"embedding_dim", whole(4)}});
}

}  // namespace

TEST_SUITE("libprofile/measure/batch") {
  TEST_CASE("indices stay below the rows of their embedding, labels below the number of classes") {
    const ResolvedModel model = embedded()
                                    .target("next", {3})
                                    .layer("head", "linear", {"embedding"}, {{"out_features", whole(5)}})
                                    .output("head")
                                    .loss("cross_entropy", "head", "next")
                                    .build();
    CHECK(integer_limit(model, kInput) == 11);
    CHECK(integer_limit(model, kTarget) == 5);
    const std::vector<at::Tensor> batch = random_batch(model, {kInput, kTarget}, 1000, DType::float32, 1);
    CHECK(batch[0].sizes().vec() == std::vector<std::int64_t>{1000, 3});
    CHECK((batch[0].scalar_type() == at::kLong));
    // 3,000 draws miss one of 11 values with probability 11 * (10/11)^3000 < 1e-120.
    CHECK(batch[0].min().item<int>() == 0);
    CHECK(batch[0].max().item<int>() == 10);
    CHECK(batch[1].max().item<int>() == 4);
  }

  TEST_CASE("the smallest of several embeddings limits the indices") {
    const ResolvedModel model = embedded()
                                    .layer("small", "embedding", {"tokens"},
                                           {{"num_embeddings", whole(7)}, {"embedding_dim", whole(4)}})
                                    .layer("sum", "add", {"embedding", "small"})
                                    .output("sum")
                                    .build();
    CHECK(integer_limit(model, kInput) == 7);
  }

  TEST_CASE("floating tensors have the dtype of the profile, and the same seed gives the same numbers") {
    const ResolvedModel model = GraphBuilder().input("x", {2, 3}).layer("y", "relu", {"x"}).output("y").build();
    const at::Tensor first = random_batch(model, {kInput}, 4, DType::float64, 9).front();
    CHECK((first.scalar_type() == at::kDouble));
    CHECK(first.sizes().vec() == std::vector<std::int64_t>{4, 2, 3});
    CHECK(at::equal(first, random_batch(model, {kInput}, 4, DType::float64, 9).front()));
    CHECK_FALSE(at::equal(first, random_batch(model, {kInput}, 4, DType::float64, 10).front()));
  }
}

}  // namespace pp::profile::batch_test
