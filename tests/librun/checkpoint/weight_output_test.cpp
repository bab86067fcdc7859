// Weights as Hugging Face's files: which tensors stand in which shard, the index, and back.
#include "librun/checkpoint/weight_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "librun/checkpoint/weight_files.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace weight_output_test {

using namespace pp;
using namespace pp::run;

namespace {

/// Three tensors of 8, 4 and 16 bytes.
const std::vector<ModelTensor> kTensors{
    {"a", {{2}, DType::float32}}, {"b", {{1}, DType::float32}}, {"c", {{4}, DType::float32}}};

std::vector<StoredTensor> stored() {
  return {{"c", kTensors[2].type, "0123456789abcdef"},
          {"a", kTensors[0].type, "ABCDEFGH"},
          {"b", kTensors[1].type, "wxyz"}};
}

using Shards = std::vector<std::vector<std::size_t>>;

std::string content(const std::filesystem::path& path, const std::string& name) {
  const SafetensorsFile file(weight_files(path));
  REQUIRE(file.find(name) != nullptr);
  return file.read(*file.find(name));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_SUITE("librun/checkpoint/weight_output") {
  TEST_CASE("shards take tensors in order as long as they fit; one that is larger stands alone") {
    CHECK((shards_of(kTensors, Bytes(28)) == Shards{{0, 1, 2}}));
    CHECK((shards_of(kTensors, Bytes(27)) == Shards{{0, 1}, {2}}));
    CHECK((shards_of(kTensors, Bytes(12)) == Shards{{0, 1}, {2}}));
    CHECK((shards_of(kTensors, Bytes(11)) == Shards{{0}, {1}, {2}}));
    CHECK((shards_of(kTensors, Bytes(1)) == Shards{{0}, {1}, {2}}));
    CHECK(shards_of({}, Bytes(1)).empty());
    CHECK(shard_name("model", 2, 15) == "model-00002-of-00015.safetensors");
  }

  TEST_CASE("a folder gets one file where all fits, else shards and their index") {
    const TestFolder folder;
    WeightOutput(folder.path(), kTensors).write(stored());
    CHECK((names_in(folder.path()) == std::vector<std::string>{"model.safetensors"}));
    CHECK(content(folder.path(), "a") == "ABCDEFGH");

    const std::filesystem::path other = folder.path() / "new" / "";
    WeightOutput(other, kTensors, Bytes(12)).write(stored());
    CHECK((names_in(other) == std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                       "model-00002-of-00002.safetensors",
                                                       "model.safetensors.index.json"}));
    const Json index = parse_json(read_file(other / "model.safetensors.index.json"));
    CHECK(index["metadata"]["total_size"] == 28);
    CHECK(index["weight_map"]["b"] == "model-00001-of-00002.safetensors");
    CHECK(index["weight_map"]["c"] == "model-00002-of-00002.safetensors");
    for (const char* name : {"a", "b", "c"}) CHECK(content(other, name) == content(folder.path(), name));
  }

  TEST_CASE("what an earlier save left goes, which others would load; other files stay") {
    const TestFolder folder;
    const std::vector<std::string> whole{"config.json", "model-of-mine.safetensors", "model.safetensors"};
    const std::vector<std::string> shards{"config.json", "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors", "model-of-mine.safetensors",
                                          "model.safetensors.index.json"};
    folder.write("config.json", "{}");
    folder.write("model-of-mine.safetensors", "");
    for (const Bytes limit : {Bytes(12), kShardBytes, Bytes(1), Bytes(12)}) {
      WeightOutput(folder.path(), kTensors, limit).write(stored());
      if (limit != Bytes(1)) CHECK(names_in(folder.path()) == (limit == kShardBytes ? whole : shards));
      CHECK(content(folder.path(), "c") == "0123456789abcdef");
    }
  }

  TEST_CASE("an index is written with its shards, also where there is one") {
    const TestFolder folder;
    const std::filesystem::path index = folder.path() / "tuned.safetensors.index.json";
    WeightOutput(index, kTensors).write(stored());
    CHECK((names_in(folder.path()) ==
           std::vector<std::string>{"tuned-00001-of-00001.safetensors", "tuned.safetensors.index.json"}));
    CHECK(content(index, "b") == "wxyz");
  }

  TEST_CASE("nothing appears before all of it is there") {
    const TestFolder folder;
    {
      WeightOutput output(folder.path(), kTensors, Bytes(12));
      CHECK(names_in(folder.path()).empty());
      std::vector<StoredTensor> fewer = stored();
      fewer.pop_back();
      CHECK_THROWS_WITH_AS(output.write(fewer), "no tensor \"b\" was trained", Error);
    }
    CHECK(names_in(folder.path()).empty());
  }
}

}  // namespace weight_output_test
