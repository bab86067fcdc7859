#include "librun/checkpoint/weight_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/checkpoint/safetensors.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace weight_files_test {

using namespace pp;
using namespace pp::run;
namespace fs = std::filesystem;

namespace {

void write_tensor(const fs::path& path, const std::string& name) {
  AtomicFile file(path);
  const std::vector<StoredTensor> tensors{{name, {{1}, DType::float32}, "four"}};
  write_safetensors(tensors, [&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

std::string refusal(const fs::path& path) {
  try {
    weight_files(path);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_SUITE("librun/checkpoint/weight_files") {
  TEST_CASE("a folder of shards is read as its index says, by its own name or the index's") {
    const TestFolder folder;
    const fs::path one = folder.path() / "model-00001-of-00002.safetensors",
                   two = folder.path() / "model-00002-of-00002.safetensors";
    write_tensor(one, "a");
    write_tensor(two, "b");
    write_tensor(folder.path() / "other.safetensors", "c");
    const fs::path index = folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 8},
        "weight_map": {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}})");
    CHECK(weight_files(folder.path()) == std::vector<fs::path>{one, two});
    CHECK(weight_files(index) == std::vector<fs::path>{one, two});
    CHECK(weight_files(one) == std::vector<fs::path>{one});
  }

  TEST_CASE("a folder with one file model.safetensors is that file") {
    const TestFolder folder;
    write_tensor(folder.path() / "model.safetensors", "a");
    CHECK(weight_files(folder.path()) == std::vector<fs::path>{folder.path() / "model.safetensors"});
  }

  TEST_CASE("an index that does not fit its shards is refused by place") {
    const TestFolder folder;
    write_tensor(folder.path() / "one.safetensors", "a");
    const auto refused = [&](const std::string& text) {
      const fs::path index = folder.write("model.safetensors.index.json", text);
      return refusal(folder.path()).substr(index.string().size());
    };
    CHECK(refused(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})") ==
          ": /weight_map/b: is not in one.safetensors; fetch the shard again");
    CHECK(refused(R"({"weight_map": {"a": "../one.safetensors"}})") ==
          ": /weight_map/a: \"../one.safetensors\" is not the name of a file in this folder");
    CHECK(refused(R"({"weight_map": {"a": 3}})") == ": /weight_map/a: is not the name of a file");
    CHECK(refused(R"({"weight_map": {}})") == ": lists no tensor");
    CHECK(refused("{}") == ": has no \"weight_map\" of tensors and their files");
    folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "two.safetensors"}})");
    CHECK(refusal(folder.path()) == (folder.path() / "two.safetensors").string() + ": no such file");
  }
}

}  // namespace weight_files_test
