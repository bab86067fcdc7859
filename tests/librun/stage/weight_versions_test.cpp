// Which version a forward takes, and which buffers are alive, by hand from the rules of each policy.
#include "librun/stage/weight_versions.h"

#include <ATen/ops/zeros.h>

#include <set>

#include "tests/librun/models.h"
#include "tests/support/torch_test.h"

namespace weight_versions_test {

using namespace pp;
using namespace pp::run;

namespace {

struct Versions {
  ResolvedModel model = resolve(test::mlp(1));
  model::Segment segment{model, {0}, false};
  FlatLayout layout{model, segment, DType::float64, at::kCPU};
  WeightVersions versions;
  std::set<void*> buffers;

  explicit Versions(plan::WeightPolicy policy, int stages = 3)
      : versions(layout, layout.zeros(), policy, stages) {}

  int forward(std::int64_t step) { return versions.for_forward(step)->version; }
  void update(std::int64_t step) {
    const auto [weights, before] = versions.begin_update(step);
    if (!before.empty()) weights.front().copy_(before.front());
    weights.front().add_(1);
    buffers.insert(versions.newest_flat().data_ptr());
  }
};

}  // namespace

TEST_SUITE("librun/stage/weight_versions") {
  TEST_CASE("2BW: version max(0, t-1), two buffers that take turns") {
    Versions two(plan::WeightPolicy::two_buffered);
    for (int t = 0; t < 6; ++t) {
      for (int m = 0; m < 4; ++m) CHECK(two.forward(t) == std::max(0, t - 1));
      if (t > 0) CHECK(two.versions.count() == 2);
      two.update(t);
      CHECK(two.versions.version() == t + 1);
    }
    CHECK(two.buffers.size() == 2);
  }

  TEST_CASE("2BW: a forward of the next update that runs before this one's update takes the version before") {
    Versions two(plan::WeightPolicy::two_buffered);
    CHECK(two.forward(0) == 0);
    CHECK(two.forward(1) == 0);
    two.update(0);
    CHECK(two.forward(1) == 0);
    CHECK(two.forward(2) == 1);
    two.update(1);
    CHECK(two.forward(2) == 1);
    CHECK(two.versions.count() == 2);
  }

  TEST_CASE("vertical sync: version max(0, j - (stages - 1)) and as many versions as stages") {
    Versions synced(plan::WeightPolicy::vertical_sync, /*stages=*/3);
    for (int j = 0; j < 8; ++j) {  // the last stage: one in flight
      CHECK(synced.forward(j) == std::max(0, j - 2));
      synced.update(j);
      CHECK(synced.versions.count() == std::min(j + 2, 3));
    }
    CHECK(synced.buffers.size() == 3);
  }

  TEST_CASE("stashing: a held version stays, its buffer is used again when nobody holds it") {
    Versions stash(plan::WeightPolicy::stash);
    auto first = stash.versions.for_forward(0);
    const at::Tensor before = first->layers[0][0].detach().clone();
    stash.update(0);  // on a copy
    CHECK(first->layers[0][0].equal(before));
    CHECK(stash.versions.count() == 2);
    auto second = stash.versions.for_forward(1);
    CHECK(second->version == 1);
    CHECK(second->layers[0][0].equal(before.add(1)));
    first.reset();
    stash.update(1);
    CHECK(stash.versions.count() == 2);
    CHECK(stash.buffers.size() == 2);  // version 2 stands where version 0 stood
    second.reset();
    stash.update(2);  // nobody holds the newest: in place
    CHECK(stash.versions.count() == 1);
    CHECK(stash.buffers.size() == 2);
    CHECK(stash.versions.newest().layers[0][0].equal(before.add(3)));
  }

  TEST_CASE("latest: the newest changes under who holds it") {
    Versions latest(plan::WeightPolicy::latest);
    const auto held = latest.versions.for_forward(0);
    const at::Tensor before = held->layers[0][0].detach().clone();
    latest.update(0);
    CHECK(held->layers[0][0].equal(before.add(1)));
    CHECK(latest.versions.count() == 1);
  }

  TEST_CASE("a stream that begins again counts its versions anew") {
    Versions two(plan::WeightPolicy::two_buffered);
    for (int t = 0; t < 3; ++t) {
      two.forward(t);
      two.update(t);
    }
    two.versions.restart();
    CHECK(two.versions.count() == 1);
    CHECK(two.forward(0) == 3);
    CHECK(two.forward(1) == 3);
    two.update(0);
    CHECK(two.forward(2) == 4);
  }

  TEST_CASE("a shared parameter stands once, each of its uses has a gradient of its own") {
    const ResolvedModel model = resolve(test::shared_mlp());
    std::vector<int> layers(model.layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = static_cast<int>(i);
    const model::Segment segment(model, layers, true);
    const FlatLayout layout(model, segment, DType::float32, at::kCPU);
    // fc0, the shared fc1 (three uses) and the head: three weights, three biases.
    REQUIRE(layout.parameters().size() == 6);
    std::int64_t further = 0;
    for (const FlatLayout::Parameter& parameter : layout.parameters()) {
      CHECK(parameter.offset() % 16 == 0);  // 64 bytes
      for (std::size_t i = 1; i < parameter.uses.size(); ++i) {
        CHECK(parameter.uses[i].offset >= layout.weight_size());
        further += (parameter.length + 15) / 16 * 16;
      }
    }
    CHECK(layout.gradient_size() == layout.weight_size() + further);
    CHECK(further == 2 * (48 + 16));  // 6x6 and 6 floats, padded, twice
    // cuBLASLt looks at the alignment of its operands up to 256 bytes: every stage must give it the same.
    const FlatLayout on_gpu(model, segment, DType::float32, at::Device(at::kCUDA, 0));
    for (const FlatLayout::Parameter& parameter : on_gpu.parameters()) {
      for (const FlatLayout::Use& use : parameter.uses) CHECK(use.offset % 64 == 0);
    }
    const FlatLayout::Buffers buffers = layout.zeros();
    CHECK(buffers.trained.equal(at::zeros({layout.weight_size()})));
    CHECK_FALSE(buffers.frozen.defined());
    for (std::size_t p = 0; p < layout.parameters().size(); ++p)
      FlatLayout::view(buffers.trained, layout.parameters()[p], layout.parameters()[p].offset())
          .fill_(static_cast<double>(1 + p));
    const model::Weights leaves = layout.leaves(buffers);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (std::size_t p = 0; p < leaves.layers[l].size(); ++p) {
        CHECK(leaves.layers[l][p].min().item<double>() == leaves.layers[l][p].max().item<double>());
        CHECK(leaves.layers[l][p].is_leaf());
        CHECK(leaves.layers[l][p].requires_grad());
      }
    }
  }
}

}  // namespace weight_versions_test
