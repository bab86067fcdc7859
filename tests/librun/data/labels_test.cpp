// Labels that the loss does not count, in files.
#include "libprofile/core/model/model_traits.h"
#include "librun/data/readers.h"
#include "tests/librun/data/data_case.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/imported_models.h"

#include <nlohmann/json.hpp>

#include "tests/support/doctest.h"

namespace labels_test {

using namespace pp;

namespace {

std::string labels(std::initializer_list<std::int8_t> values) {
  return run::idx_bytes(run::ElementType::int8, {static_cast<std::int64_t>(values.size())},
                        pp::test::bytes_of(values));
}

struct Labelled : pp::test::Case {
  explicit Labelled(ModelGraph graph) : Case(std::move(graph)) {
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {3, 2}, std::string(6, '\1')));
  }
};

}  // namespace

TEST_SUITE("librun/data/labels") {
  TEST_CASE("cross_entropy takes its ignored label beside the classes, and no other") {
    const Labelled plain(pp::test::classifier({2}));
    CHECK(plain.refusal_of("train-labels.idx", labels({0, -100, 2})) == "accepted");
    CHECK(
        plain.refusal_of("train-labels.idx", labels({0, -100, -1})) ==
        "DIR/train-labels.idx: byte 10: -1 in sample 2, the model's target \"y\" takes 0 to 2, and -100 for no "
        "label; correct the data or plan a model with more");
    ModelGraph graph = pp::test::classifier({2});
    graph.loss->attributes["ignore_index"] = std::int64_t{-1};
    const Labelled other(graph);
    CHECK(other.refusal_of("train-labels.idx", labels({0, -1, 2})) == "accepted");
    CHECK(other.refusal_of("train-labels.idx", labels({0, -100, 2})) != "accepted");
  }

  TEST_CASE("labels that an embedding reads as well are classes, all of them") {
    ModelGraph graph = pp::test::language(5);
    const TensorSource next{TensorSource::Kind::target, 0, 0}, tokens{TensorSource::Kind::input, 0, 0};
    CHECK(index_range(resolve(graph), next).ignored == -100);
    graph.loss->inputs[1] = "tokens";
    graph.targets.clear();
    CHECK(index_range(resolve(graph), tokens).limit == 5);
    CHECK_FALSE(index_range(resolve(graph), tokens).ignored.has_value());
  }
}

}  // namespace labels_test
