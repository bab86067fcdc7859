#include "librun/checkpoint/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
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
}

}  // namespace safetensors_test
