// How a stage's weights are cut into parts, and norms that do not depend on it.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <vector>

#include "librun/stage/block_squares.h"
#include "librun/stage/flat_layout.h"
#include "tests/librun/models.h"
#include "tests/support/torch_test.h"

namespace shards_test {

using namespace pp;
using run::FlatLayout;

namespace {

using Pieces = std::vector<FlatLayout::Piece>;

std::vector<Pieces> parts_of(const ModelGraph& graph, std::size_t members) {
  const ResolvedModel model = resolve(graph);
  std::vector<int> layers(model.layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = static_cast<int>(i);
  const model::Segment segment(model, layers, /*with_loss=*/true);
  return FlatLayout(model, segment, DType::float32, at::kCPU).parts(members);
}

}  // namespace

TEST_SUITE("librun/stage/shards") {
  // skip_mlp(64), places of multiples of 16 floats: fc0 64x5 at 0 and 64 at 320, fc1 64x64 at 384 and 64 at
  // 4480, head 3x64 at 4544 and 3 at 4736; 4752 in all. fc1 may be cut behind every 4 rows, 256 elements. Two
  // members want a border at 2376: behind 8 such blocks it is 384 + 2048 = 2432, 56 away, behind 7 of them 200.
  TEST_CASE("two parts of a small model: cut where the middle is nearest") {
    const auto parts = parts_of(test::skip_mlp(64), 2);
    REQUIRE(parts.size() == 2);
    CHECK((parts[0] == Pieces{{0, 0, 64, 0, 320}, {1, 0, 64, 320, 64}, {2, 0, 32, 384, 2048}}));
    CHECK((parts[1] ==
           Pieces{{2, 32, 64, 2432, 2048}, {3, 0, 64, 4480, 64}, {4, 0, 3, 4544, 192}, {5, 0, 3, 4736, 3}}));
  }

  // Three want 1584 and 3168: behind 5 blocks 1664 (80 away, 4 blocks: 176), behind 11 blocks 3200.
  TEST_CASE("three parts, the middle one within a parameter") {
    const auto parts = parts_of(test::skip_mlp(64), 3);
    REQUIRE(parts.size() == 3);
    CHECK((parts[0].back() == FlatLayout::Piece{2, 0, 20, 384, 1280}));
    CHECK((parts[1] == Pieces{{2, 20, 44, 1664, 1536}}));
    CHECK((parts[2].front() == FlatLayout::Piece{2, 44, 64, 3200, 1280}));
  }

  // mlp(1): 6x5, 6, 3x6 and 3 elements, no multiple of 256 within: places at 0, 32, 48 and 80, 96 in all. Eight
  // members want 12, 24, 36, 48, 60, 72 and 84, whose nearest borders are 0, 32, 32, 48, 48, 80 and 80.
  TEST_CASE("more members than there are borders: parts without weights") {
    const auto parts = parts_of(test::mlp(1), 8);
    std::vector<std::size_t> sizes;
    for (const auto& part : parts) sizes.push_back(part.size());
    CHECK(sizes == std::vector<std::size_t>{0, 1, 0, 1, 0, 1, 0, 1});
    CHECK(parts_of(test::mlp(1), 1).front().size() == 4);
  }

  // 300 elements i: blocks of 256 and 44. Sums of squares 0..n-1 are (n-1) n (2n-1) / 6: 5,559,680 of 256 and
  // 8,955,050 of 300, so 3,395,370 for the rest.
  TEST_CASE("squares by blocks: hand arithmetic, halves too") {
    const std::vector<at::Tensor> tensors{at::arange(300, at::kFloat), at::full({2, 3}, 0.5, at::kHalf)};
    const auto squares = run::block_squares(tensors);
    REQUIRE(squares.size() == 2);
    CHECK(squares[0] == std::vector<double>{5559680, 3395370});
    CHECK(squares[1] == std::vector<double>{1.5});
  }

  TEST_CASE("a part that begins with a block has the squares of the whole, in either memory format") {
    for (const at::Tensor& whole :
         {at::randn({40, 64}), at::randn({64, 8, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast)}) {
      const auto all = run::block_squares(std::vector{whole}).front();
      const std::int64_t row = whole.numel() / whole.size(0);
      for (std::int64_t first = 0; first < whole.size(0); first += 8) {
        const auto part = run::block_squares(std::vector{whole.narrow(0, first, 8)}).front();
        for (std::size_t i = 0; i < part.size(); ++i)
          CHECK(part[i] == all[static_cast<std::size_t>(first * row / run::kNormBlock) + i]);
      }
      double sum = 0;
      for (const double square : all) sum += square;
      CHECK(std::sqrt(sum) == doctest::Approx(whole.norm().item<double>()).epsilon(1e-5));
    }
  }
}

}  // namespace shards_test
