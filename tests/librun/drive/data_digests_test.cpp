#include "librun/drive/data_digests.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace data_digests_test {

using namespace pp;
using namespace pp::run;

namespace {

// 8 samples of 4 bytes, a step of two each.
DigestedData data_in(const TestFolder& folder, const std::string& bytes) {
  const std::filesystem::path file = folder.write("x", bytes);
  SampleTable table{.source = file.string(), .samples = 8};
  table.inputs.push_back(
      dense_records(file.string(), std::make_shared<FileBytes>(file), 0, {8, 4}, ElementType::uint8));
  return {.table = table,
          .epoch = {.samples = 8, .mini_batch = 2, .micro_batches = 1, .count = 4},
          .first = 0,
          .end = 4,
          .shuffle = false};
}

std::vector<std::string> digests_of(Coordinator& run, const DigestedData& data) {
  std::vector<std::string> told;
  DataDigests digests(run, data, [&](Step step, const std::string& digest) {
    told.push_back(std::to_string(step) + " " + digest);
  });
  digests.join();
  return told;
}

}  // namespace

TEST_SUITE("librun/drive/data_digests") {
  TEST_CASE("equal samples have equal digests, told behind the last step") {
    const TestFolder one, other;
    Coordinator run(1);
    const std::string bytes = "0123456789abcdefghijABCDEFGHIJKL";
    const std::vector<std::string> told = digests_of(run, data_in(one, bytes));
    REQUIRE(told.size() == 1);
    CHECK(told.front().starts_with("4 "));
    CHECK(digests_of(run, data_in(other, bytes)) == told);
    std::string changed = bytes;
    changed[13] = '.';
    CHECK(digests_of(run, data_in(other, changed)) != told);
  }

  // No worker of this rank may read what was lost, and then nobody compares it.
  TEST_CASE("samples that cannot be read stop the run, with the file's name") {
    const TestFolder folder;
    const DigestedData data = data_in(folder, std::string(32, 'x'));
    std::filesystem::resize_file(data.table.source, 20);
    Coordinator run(1);
    CHECK(digests_of(run, data).empty());
    REQUIRE(run.stopped());
    std::string said;
    try {
      std::rethrow_exception(run.error());
    } catch (const Error& error) {
      said = error.what();
    }
    CHECK(said.starts_with(data.table.source + ": ends at byte 20"));
  }
}

}  // namespace data_digests_test
