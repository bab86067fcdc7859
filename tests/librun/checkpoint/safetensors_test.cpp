// Files of tensors: their format, the folders of shards, and what of a model is in them.
#include "librun/checkpoint/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/checkpoint/weight_files.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace safetensors_test {

using namespace pp;
using namespace pp::run;

namespace {

std::string file_with_header(const std::string& header, const std::string& data) {
  return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + data;
}

// The message behind the path.
std::string refusal(const std::string& bytes) {
  const TestFolder folder;
  const auto path = folder.write("w.safetensors", bytes);
  try {
    const SafetensorsFile file(path);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return std::string(error.what()).substr(path.string().size());
  }
  return "accepted";
}

namespace fs = std::filesystem;

void write_tensor(const fs::path& path, const std::string& name) {
  AtomicFile file(path);
  const std::vector<StoredTensor> tensors{{name, {{1}, DType::float32}, "four"}};
  write_safetensors(tensors, [&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

std::string index_refusal(const fs::path& path) {
  return pp::test::error_of([&] { weight_files(path); }, ErrorKind::data);
}

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

TEST_SUITE("librun/checkpoint/safetensors") {
  TEST_CASE("tensors come back with name, type and bytes") {
    const TestFolder folder;
    const auto path = folder.path() / "w.safetensors";
    const std::vector<StoredTensor> tensors{{"fc.weight", {{1, 2}, DType::float32}, "abcdefgh"},
                                            {"fc.bias", {{3}, DType::uint8}, "xyz"},
                                            {"step", {{}, DType::int64}, "12345678"}};
    {
      AtomicFile file(path);
      write_safetensors(tensors, [&](std::string_view bytes) { file.write(bytes); });
      file.commit();
    }
    const SafetensorsFile read(path);
    REQUIRE(read.tensors().size() == 3);
    for (const StoredTensor& tensor : tensors) {
      const SafetensorsFile::Entry* found = read.find(tensor.name);
      REQUIRE(found != nullptr);
      CHECK(found->type == tensor.type);
      CHECK(read.read(*found) == tensor.bytes);
    }
    CHECK(read.find("fc.gain") == nullptr);
  }

  TEST_CASE("the bytes are those of the published format") {
    const TestFolder folder;
    const auto path = folder.path() / "w.safetensors";
    const std::vector<StoredTensor> tensors{{"a", {{2}, DType::uint8}, "xy"}};
    {
      AtomicFile file(path);
      write_safetensors(tensors, [&](std::string_view bytes) { file.write(bytes); });
      file.commit();
    }
    // 51 characters of header, padded to 56.
    std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    CHECK(read_file(path) == file_with_header(header, "xy"));
  }

  TEST_CASE("broken files are refused with what is wrong") {
    CHECK(refusal("abc") == ": not a safetensors file: shorter than 8 bytes");
    CHECK(refusal(std::string("\x40\0\0\0\0\0\0\0{}", 10)) ==
          ": not a safetensors file: a header of 64 bytes in a file of 10");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "xyz")) ==
          ": /a/data_offsets: 3 bytes, 2 needed for uint8 [2]");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "x")) ==
          ": /a/data_offsets: must be the begin and end of a range within the 1 bytes of data");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"F8","shape":[2],"data_offsets":[0,2]}})", "xy")) ==
          ": /a/dtype: \"F8\" is none of F32, F64, BF16, F16, I64, U8, BOOL");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy")) ==
          ": /a/data_offsets: leaves a gap or overlaps another tensor");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xyzzz")) ==
          ": 3 bytes behind the last tensor; the file is not what its header says, get it again");
  }

  // 100,000,001 = 0x5f5e101. The file is sparse: nothing of it is read.
  TEST_CASE("a header beyond what the format allows is refused before it is read") {
    const TestFolder folder;
    const auto path = folder.write("w.safetensors", std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
    std::filesystem::resize_file(path, std::uintmax_t{1} << 33);
    std::string message;
    try {
      const SafetensorsFile file(path);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message ==
          path.string() + ": not a safetensors file: a header of 100000001 bytes, the format allows 100000000");
  }

  // Bits of IEEE 754's binary16, little-endian: 1, -2, 65504 (the largest), 2^-24 (the smallest), 2^-14 (the
  // smallest normal), -0, infinity, 1/3 rounded.
  TEST_CASE("float16 weights are read as the float32 numbers that they are") {
    const std::string bits("\x00\x3c\x00\xc0\xff\x7b\x01\x00\x00\x04\x00\x80\x00\x7c\x55\x35", 16);
    const TestFolder folder;
    const auto path =
        folder.write("w.safetensors",
                     file_with_header(R"({"a":{"dtype":"F16","shape":[2,4],"data_offsets":[0,16]}})", bits));
    const SafetensorsFile file(path);
    REQUIRE(file.tensors().size() == 1);
    CHECK(file.tensors()[0].type == TensorType{{2, 4}, DType::float32});
    const std::string bytes = file.read(file.tensors()[0]);
    std::vector<float> values(8);
    REQUIRE(bytes.size() == 32);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    CHECK(values == std::vector<float>{1, -2, 65504, 0x1p-24F, 0x1p-14F, -0.0F,
                                       std::numeric_limits<float>::infinity(), 1365.0F / 4096});
    CHECK(std::signbit(values[5]));
  }

  TEST_CASE("every float16 number") {
    std::string bits;
    std::vector<float> expected;
    for (int half = 0; half < 65536; ++half) {
      bits += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
      const int exponent = half >> 10 & 31, fraction = half & 1023;
      const int digits = exponent > 0 ? 1024 + fraction : fraction;
      const double size = exponent < 31 ? std::ldexp(digits, std::max(exponent, 1) - 25) : HUGE_VAL;
      expected.push_back(static_cast<float>(half < 32768 ? size : -size));
    }
    const TestFolder folder;
    const auto path = folder.write(
        "w.safetensors",
        file_with_header(R"({"a":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", bits));
    const SafetensorsFile file(path);
    const std::string bytes = file.read(file.tensors()[0]);
    REQUIRE(bytes.size() == 4 * expected.size());
    int wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes.data() + 4 * i, sizeof value);
      const bool nan = (i & 0x7c00) == 0x7c00 && (i & 1023) != 0;
      wrong += nan ? !std::isnan(value) : value != expected[i] || std::signbit(value) != (i >= 32768);
    }
    CHECK(wrong == 0);
  }

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
      return index_refusal(folder.path()).substr(index.string().size());
    };
    CHECK(refused(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})") ==
          ": /weight_map/b: is not in one.safetensors; fetch the shard again");
    CHECK(refused(R"({"weight_map": {"a": "../one.safetensors"}})") ==
          ": /weight_map/a: \"../one.safetensors\" is not the name of a file in this folder");
    CHECK(refused(R"({"weight_map": {"a": 3}})") == ": /weight_map/a: is not the name of a file");
    CHECK(refused(R"({"weight_map": {}})") == ": lists no tensor");
    CHECK(refused("{}") == ": has no \"weight_map\" of tensors and their files");
    folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "two.safetensors"}})");
    CHECK(index_refusal(folder.path()) == (folder.path() / "two.safetensors").string() + ": no such file");
  }

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

}  // namespace safetensors_test
