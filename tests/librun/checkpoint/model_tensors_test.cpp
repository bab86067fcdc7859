// The optimizer's state in a file: whole, or in rows of several owners.
#include "librun/checkpoint/model_tensors.h"

#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "librun/checkpoint/safetensors.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace model_tensors_test {

using namespace pp;
using namespace pp::run;

namespace {

const std::vector<ModelTensor> kWanted{{"fc.weight", {{6, 2}, DType::float32}},
                                       {"fc.bias", {{6}, DType::float32}},
                                       {"bn.running_mean", {{6}, DType::float32}, false}};
const std::vector<std::string> kSlots{"exp_avg", "step"};

/// Entries `name` of so many rows of fc.weight's exp_avg, beside all else that is wanted.
bool has_state(const std::vector<std::pair<std::string, std::int64_t>>& rows, std::int64_t columns = 2) {
  const TestFolder folder;
  const std::string zeros(64, '\0');
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    tensors.push_back({name,
                       {shape, DType::float32},
                       std::string_view(zeros).substr(0, static_cast<std::size_t>(4 * element_count(shape)))});
  };
  add("fc.bias.exp_avg", {6});
  add("fc.bias.step", {});
  add("fc.weight.step", {});
  for (const auto& [name, count] : rows) add(name, {count, columns});
  std::string bytes;
  write_safetensors(tensors, [&](std::string_view piece) { bytes += piece; });
  write_file(folder.path() / "optimizer.safetensors", bytes);
  return has_optimizer_state(SafetensorsFile(folder.path() / "optimizer.safetensors"), kWanted, kSlots);
}

}  // namespace

TEST_SUITE("librun/checkpoint/model_tensors") {
  TEST_CASE("names of rows are read as they are written; others are names of whole tensors") {
    CHECK(rows_name("fc.weight.exp_avg", {4, 6}) == "fc.weight.exp_avg[4:6]");
    const auto found = parse_rows_name("fc.weight.exp_avg[4:6]");
    REQUIRE(found);
    CHECK(found->whole == "fc.weight.exp_avg");
    CHECK(found->rows.first == 4);
    CHECK(found->rows.end == 6);
    for (const char* whole : {"fc.weight", "fc[0]", "fc[a:2]", "fc[1:]", "fc[1:2", "fc[1:2]x", "[]:", ":[1]"})
      CHECK_FALSE(parse_rows_name(whole));
  }

  TEST_CASE("state is there when it is whole, or all of its rows are") {
    CHECK(has_state({{"fc.weight.exp_avg", 6}}));
    CHECK(has_state({{"fc.weight.exp_avg[4:6]", 2}, {"fc.weight.exp_avg[0:4]", 4}}));
  }

  TEST_CASE("rows that are missing, overlap or have another shape are refused by name") {
    CHECK_THROWS_WITH(
        has_state({{"fc.weight.exp_avg[0:2]", 2}, {"fc.weight.exp_avg[4:6]", 2}}),
        "tensor \"fc.weight.exp_avg\": row 2 of 6 is missing or there twice; use a whole checkpoint");
    CHECK_THROWS_WITH(
        has_state({{"fc.weight.exp_avg[0:4]", 4}}),
        "tensor \"fc.weight.exp_avg\": row 4 of 6 is missing or there twice; use a whole checkpoint");
    CHECK_THROWS_WITH(
        has_state({{"fc.weight.exp_avg[0:4]", 4}, {"fc.weight.exp_avg[2:6]", 4}}),
        "tensor \"fc.weight.exp_avg\": row 4 of 6 is missing or there twice; use a whole checkpoint");
    CHECK_THROWS_WITH(
        has_state({{"fc.weight.exp_avg[0:6]", 5}}),
        "tensor \"fc.weight.exp_avg[0:6]\": is float32 [5, 2], the optimizer's state of float32 [6, 2] "
        "is expected");
    CHECK_THROWS_WITH(has_state({}),
                      "tensor \"fc.weight.exp_avg\": is missing (1 tensor in all); use a whole "
                      "checkpoint");
  }
}

}  // namespace model_tensors_test
