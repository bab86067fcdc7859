#include "librun/checkpoint/safetensors.h"

#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

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
          ": /a/dtype: \"F8\" is none of F32, F64, BF16, I64, U8, BOOL");
    CHECK(refusal(file_with_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy")) ==
          ": /a/data_offsets: leaves a gap or overlaps another tensor");
  }
}
