#include "librun/data/readers.h"

#include <cstring>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace idx_test {

using namespace pp;
using namespace pp::run;

namespace {

// The message with the folder's name taken out.
std::string refusal(const TestFolder& folder, const std::string& bytes) {
  const auto path = folder.write("x.idx", bytes);
  try {
    read_idx(path);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return std::string(error.what()).substr(path.string().size());
  }
  return "accepted";
}

}  // namespace

TEST_SUITE("librun/data/idx") {
  TEST_CASE("header and elements come back as they were written") {
    const TestFolder folder;
    const std::vector<std::int32_t> values{1, -2, 70000, 4, 5, 6};
    const std::string_view elements(reinterpret_cast<const char*>(values.data()), 24);
    const std::string bytes = idx_bytes(ElementType::int32, {3, 2}, elements);
    // 00 00 0C 02, 00000003, 00000002, then 00000001 big-endian.
    CHECK(bytes.substr(0, 16) == std::string("\0\0\x0C\x02\0\0\0\x03\0\0\0\x02\0\0\0\x01", 16));
    const auto path = folder.write("x.idx", bytes);
    const Records records = read_idx(path);
    CHECK(records.type == ElementType::int32);
    CHECK(records.shape == Shape{2});
    CHECK(records.samples() == 3);
    std::string read(24, '\0');
    read_records(records, std::vector<std::int64_t>{0, 1, 2}, read);
    CHECK(read == elements);
  }

  TEST_CASE("files that are not IDX are refused with what is wrong") {
    const TestFolder folder;
    CHECK(refusal(folder, "") == ": not an IDX file: it ends inside the header");
    CHECK(refusal(folder, "PNG.") == ": not an IDX file: the first two bytes are not zero");
    CHECK(refusal(folder, std::string("\0\0\x07\x01", 4)) ==
          ": not an IDX file: element type 7 is none of 8, 9, 11, 12, 13, 14");
    CHECK(refusal(folder, std::string("\0\0\x08\0", 4)) ==
          ": not an IDX file: 0 dimensions, 1 to 8 are allowed");
    CHECK(refusal(folder, std::string("\0\0\x08\x02\0\0\0\x01", 8)) ==
          ": not an IDX file: it ends inside the header");
  }

  TEST_CASE("the elements must fill the shape exactly") {
    const TestFolder folder;
    const std::string whole = idx_bytes(ElementType::uint8, {2, 3}, "abcdef");
    CHECK(refusal(folder, whole) == "accepted");
    CHECK(refusal(folder, whole.substr(0, whole.size() - 1)) ==
          ": 5 bytes of elements, 6 expected for uint8 [2, 3]");
    CHECK(refusal(folder, whole + "g") == ": 7 bytes of elements, 6 expected for uint8 [2, 3]");
    CHECK(refusal(folder, std::string("\0\0\x08\x01\0\0\0\0", 8)) == ": the shape [0] has no elements");
    CHECK(refusal(folder, std::string("\0\0\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", 12)) ==
          ": the shape [4294967295, 4294967295] has more than 2^40 elements");
  }

  TEST_CASE("a missing file is named") {
    CHECK_THROWS_WITH_AS(read_idx("no/such.idx"), "no/such.idx: no such file", Error);
  }
}

}  // namespace idx_test
