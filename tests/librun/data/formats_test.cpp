// Every format from bytes written here, and everything that is wrong with them.
#include "librun/data/formats.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/model/model_traits.h"
#include "librun/data/readers.h"
#include "tests/librun/data/data_case.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/imported_models.h"
#include "tests/support/doctest.h"

namespace formats_test {

using namespace pp;
using namespace pp::run;
using namespace pp::test;

namespace {

std::string labels(std::initializer_list<std::int8_t> values) {
  return run::idx_bytes(run::ElementType::int8, {static_cast<std::int64_t>(values.size())},
                        pp::test::bytes_of(values));
}

struct Labelled : pp::test::Case {
  explicit Labelled(ModelGraph graph) : Case(std::move(graph)) {
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {3, 2}, std::string(6, '\1')));
  }
};

}  // namespace

TEST_SUITE("librun/data/formats") {
  TEST_CASE("CIFAR-10: labels and images of all batches in order, and the test batch") {
    Case c(classifier({3, 32, 32}));
    const auto record = [](char label, char pixel) { return std::string(1, label) + std::string(3072, pixel); };
    c.folder.write("data_batch_1.bin", record(0, 'a') + record(1, 'b'));
    c.folder.write("data_batch_2.bin", record(2, 'c'));
    c.folder.write("test_batch.bin", record(1, 'd'));
    const DataFiles files = c.open();
    CHECK(files.training.samples == 3);
    CHECK(values<std::uint8_t>(files.training, files.training.targets[0]) ==
          std::vector<std::uint8_t>{0, 1, 2});
    const auto images = values<std::uint8_t>(files.training, files.training.inputs[0]);
    CHECK(std::string(images.begin(), images.end()) ==
          std::string(3072, 'a') + std::string(3072, 'b') + std::string(3072, 'c'));
    REQUIRE(files.test);
    CHECK(values<std::uint8_t>(*files.test, files.test->targets[0]) == std::vector<std::uint8_t>{1});
    CHECK(files.bytes_in_memory == 0);
  }

  TEST_CASE("CIFAR-10: files of another length and labels beyond the classes are refused") {
    Case c(classifier({3, 32, 32}));
    CHECK(c.refusal_of("data_batch_1.bin", std::string(3072, '\0')) ==
          "DIR/data_batch_1.bin: 3072 bytes, a CIFAR-10 file has a multiple of 3073 (a label and 3 x 32 x 32 "
          "bytes)");
    CHECK(c.refusal_of("data_batch_1.bin", "").starts_with("DIR/data_batch_1.bin: 0 bytes, "));
    // The second record begins at byte 3073.
    CHECK(c.refusal_of("data_batch_1.bin", std::string(3073, '\0') + '\3' + std::string(3072, '\0')) ==
          "DIR/data_batch_1.bin: byte 3073: 3 in sample 1, the model's target \"y\" takes 0 to 2; "
          "correct the data or plan a model with more");
    CHECK(Case(classifier({3, 32, 32})).refusal().starts_with("DIR: no data: "));
    Case other(classifier({3, 8, 8}));
    CHECK(other.refusal_of("data_batch_1.bin", std::string(3073, '\0')) ==
          "DIR: samples have the shape [3, 32, 32], the model's input \"x\" is [3, 8, 8]; give data of that "
          "shape or "
          "plan a model for this data");
  }

  TEST_CASE("labels of IDX files beyond the classes are refused with their byte") {
    Case c(classifier({2}));
    c.folder.write("train-images.idx", idx_bytes(ElementType::uint8, {2, 2}, "abcd"));
    // Elements begin at byte 4 + 4.
    CHECK(
        c.refusal_of("train-labels.idx", idx_bytes(ElementType::uint8, {2}, std::string("\0\3", 2))) ==
        "DIR/train-labels.idx: byte 9: 3 in sample 1, the model's target \"y\" takes 0 to 2; correct the data "
        "or plan "
        "a model with more");
    CHECK(
        c.refusal_of("train-labels.idx", idx_bytes(ElementType::int8, {2}, std::string("\xff\0", 2))) ==
        "DIR/train-labels.idx: byte 8: -1 in sample 0, the model's target \"y\" takes 0 to 2, and -100 for no "
        "label; correct the data or plan a model with more");
  }

  TEST_CASE("tokens: windows of the model's length, targets moved on by one") {
    Case c(language(256));
    c.request.path = c.folder.write("text.txt", "abcdefghijk");
    c.request.token_type = "uint8";
    // 11 tokens: windows of 4 at 0 and 4, each with the token after it; ijk has none.
    const DataFiles files = c.open();
    CHECK(files.training.samples == 2);
    CHECK_FALSE(files.test);
    const auto text = [&](const Records& records) {
      const auto bytes = values<char>(files.training, records);
      return std::string(bytes.begin(), bytes.end());
    };
    CHECK(text(files.training.inputs[0]) == "abcdefgh");
    CHECK(text(files.training.targets[0]) == "bcdefghi");
  }

  TEST_CASE("tokens of two bytes are little-endian; a folder has train.bin and test.bin") {
    Case c(language(1000));
    c.request.token_type = "uint16";
    c.folder.write("train.bin", std::string("\1\0\2\0\3\0\4\0\x2c\1", 10));
    c.folder.write("test.bin", std::string("\1\0\1\0\1\0\1\0\1\0", 10));
    const DataFiles files = c.open();
    CHECK(values<std::uint16_t>(files.training, files.training.targets[0]) ==
          std::vector<std::uint16_t>{2, 3, 4, 300});
    REQUIRE(files.test);
    CHECK(files.test->samples == 1);
    c.request.token_type = "uint32";
    CHECK(c.refusal() ==
          "DIR/train.bin: 10 bytes are no whole number of uint32 tokens; give another --token-type");
    c.request.token_type = "int8";
    CHECK(c.refusal(ErrorKind::usage) ==
          "--token-type: unknown type \"int8\"; did you mean uint8? Use one of uint8, uint16, uint32");
  }

  TEST_CASE("tokens that the model does not know, files shorter than a window, other models are refused") {
    Case c(language(100));
    c.request.token_type = "uint8";
    c.request.path = c.folder.write("text", "AAAAAd");  // 'd' is 100 and stands behind the only window
    CHECK(c.refusal() == "accepted");
    c.folder.write("text", "AAAAd");
    CHECK(c.refusal() ==
          "DIR/text: byte 4: 100 in sample 0, the model's target \"next\" takes 0 to 99; correct the data or "
          "plan "
          "a model "
          "with more");
    c.folder.write("text", "AAAA");
    CHECK(c.refusal() == "DIR/text: 4 tokens, a sample takes 4 and the one after them");
    Case images(classifier({4}));
    images.request.token_type = "uint8";
    images.request.path = images.folder.write("text", "AAAAA");
    CHECK(images.refusal() ==
          "DIR/text: tokens are for a model whose input and target are integers of one shape, \"x\" is float32 "
          "[4] "
          "and \"y\" is []");
  }

  TEST_CASE("safetensors: tensors by the names of inputs and targets, others are left alone") {
    Case c(classifier({2}));
    c.request.path = c.folder.write(
        "data.safetensors",
        pp::test::safetensors_bytes(
            R"({"note":{"dtype":"F8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[2,2],"data_offsets":[1,17]},"y":{"dtype":"I32","shape":[2],"data_offsets":[17,25]}})",
            "n" + pp::test::bytes_of<float>({1.5f, 2, 3, -4}) + pp::test::bytes_of<std::int32_t>({2, 0})));
    const DataFiles files = c.open();
    CHECK(values<float>(files.training, files.training.inputs[0]) == std::vector<float>{1.5f, 2, 3, -4});
    CHECK(values<std::int32_t>(files.training, files.training.targets[0]) == std::vector<std::int32_t>{2, 0});
  }

  TEST_CASE("safetensors: what is missing or wrong is named") {
    Case c(classifier({2}));
    c.request.path = c.folder.path() / "data.safetensors";
    const auto refusal = [&](const std::string& x, const std::string& y, std::size_t bytes) {
      const std::string header = "{" + x + (x.empty() || y.empty() ? "" : ",") + y + "}";
      return c.refusal_of("data.safetensors", pp::test::safetensors_bytes(header, std::string(bytes, '\0')));
    };
    const std::string x = R"("x":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]})",
                      y = R"("y":{"dtype":"U8","shape":[2],"data_offsets":[4,6]})";
    CHECK(refusal(x, y, 6) == "accepted");
    CHECK(refusal(x, "", 4) ==
          "DIR/data.safetensors: no tensor is named \"y\", as the model's input or target is; it has x");
    CHECK(refusal(x, y, 5) ==
          "DIR/data.safetensors: /y/data_offsets: must be the begin and end of a range within the 5 bytes of "
          "data");
    CHECK(refusal(x, R"("y":{"dtype":"U8","shape":[3],"data_offsets":[4,7]})", 7) ==
          "DIR/data.safetensors: y: 3 samples, 2 in DIR/data.safetensors: x; give as many of each");
    CHECK(refusal(x, R"("y":{"dtype":"U8","shape":[3],"data_offsets":[4,6]})", 6) ==
          "DIR/data.safetensors: /y/data_offsets: 2 bytes, 3 needed for uint8 [3]");
    CHECK(refusal(x, R"("y":{"dtype":"C64","shape":[2],"data_offsets":[4,6]})", 6) ==
          "DIR/data.safetensors: /y/dtype: \"C64\" is none of BOOL, U8, I8, U16, I16, U32, I32, I64, F16, "
          "BF16, F32, "
          "F64");
    CHECK(refusal(x, R"("y":{"dtype":"F16","shape":[1],"data_offsets":[4,6]})", 6) ==
          "DIR/data.safetensors: y: elements are float16, the model's target \"y\" is int64; give integers");
    CHECK(refusal(x, R"("y":{"dtype":"U8","shape":[],"data_offsets":[4,5]})", 5) ==
          "DIR/data.safetensors: y: a single number; the first dimension counts samples");
    CHECK(refusal(R"("x":{"dtype":"U8","shape":[0,2],"data_offsets":[0,0]})",
                  R"("y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})",
                  0) == "DIR/data.safetensors: x: the shape [0, 2] has no elements");
    CHECK(c.refusal_of("data.safetensors", "abc") ==
          "DIR/data.safetensors: not a safetensors file: shorter than 8 bytes");
    CHECK(c.refusal_of("data.safetensors", std::string(8, '\xff'))
              .starts_with(
                  "DIR/data.safetensors: not a safetensors file: a header of 18446744073709551615 bytes"));
  }

  TEST_CASE(".npy: the published layout, versions 1 and 2, both byte orders") {
    Case c(classifier({2}));
    // NumPy's documentation, "Format Version 1.0" and "2.0": magic, version, length (2 or 4 bytes), header
    // padded with spaces to a multiple of 64 and ended by a newline, elements.
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    std::string padded = header + std::string(128 - 10 - header.size() - 1, ' ') + "\n";
    REQUIRE(padded.size() == 118);
    const std::string elements = pp::test::bytes_of<float>({1, 2, 3, 4});
    c.folder.write("x.npy", std::string("\x93NUMPY\1\0\x76\0", 10) + padded + elements);
    c.folder.write("y.npy", pp::test::npy_bytes("|u1", "(2,)", std::string("\2\1", 2)));
    DataFiles files = c.open();
    CHECK(values<float>(files.training, files.training.inputs[0]) == std::vector<float>{1, 2, 3, 4});
    CHECK(values<std::uint8_t>(files.training, files.training.targets[0]) == std::vector<std::uint8_t>{2, 1});
    c.folder.write("x.npy", std::string("\x93NUMPY\2\0\x76\0\0\0", 12) + padded + elements);
    c.folder.write("y.npy", pp::test::npy_bytes(">i2", "(2,)", std::string("\0\2\0\1", 4)));
    files = c.open();
    CHECK(values<float>(files.training, files.training.inputs[0]) == std::vector<float>{1, 2, 3, 4});
    CHECK(values<std::int16_t>(files.training, files.training.targets[0]) == std::vector<std::int16_t>{2, 1});
  }

  TEST_CASE(".npy: with train- and test- before the names, both are read") {
    Case c(classifier({1}));
    for (const std::string prefix : {"train-", "test-"}) {
      c.folder.write(prefix + "x.npy", pp::test::npy_bytes("<f8", "(1, 1)", pp::test::bytes_of<double>({7})));
      c.folder.write(prefix + "y.npy",
                     pp::test::npy_bytes("<i8", "(1,)", pp::test::bytes_of<std::int64_t>({2})));
    }
    const DataFiles files = c.open();
    REQUIRE(files.test);
    CHECK(values<double>(*files.test, files.test->inputs[0]) == std::vector<double>{7});
    CHECK(c.refusal_of("test-y.npy", "") == "DIR/test-y.npy: not a .npy file: it ends inside the header");
  }

  TEST_CASE(".npy: other arrays and broken files are refused with what is wrong") {
    Case c(classifier({2}));
    c.folder.write("y.npy", pp::test::npy_bytes("|u1", "(2,)", "\1\1"));
    const auto refusal = [&](const std::string& bytes) {
      const std::string text = c.refusal_of("x.npy", bytes);
      return text.starts_with("DIR/x.npy: ") ? text.substr(11) : text;
    };
    const std::string ok = pp::test::npy_bytes("|u1", "(2, 2)", "abcd");
    CHECK(refusal(ok) == "accepted");
    CHECK(refusal(ok + "e") == "5 bytes of elements, 4 expected for uint8 [2, 2]");
    CHECK(refusal(ok.substr(0, ok.size() - 1)) == "3 bytes of elements, 4 expected for uint8 [2, 2]");
    CHECK(refusal("") == "not a .npy file: it ends inside the header");
    CHECK(refusal(ok.substr(0, 40)) == "not a .npy file: it ends inside the header");
    CHECK(refusal("\x93NUMPX" + ok.substr(6)) == "not a .npy file: its first bytes are not \\x93NUMPY");
    CHECK(refusal("\x93NUMPY\4" + ok.substr(7)) == "not a .npy file: its version is 4, 1 to 3 are known");
    CHECK(refusal(pp::test::npy_bytes("<c8", "(2, 2)", "")) ==
          "elements are \"<c8\", readable are b1, u1, i1, u2, i2, u4, i4, i8, f2, f4, f8 behind < or > (| for "
          "one "
          "byte)");
    CHECK(refusal(pp::test::npy_bytes("|u1", "()", "a")) ==
          "a single number; the first dimension counts samples");
    CHECK(refusal(pp::test::npy_bytes("|u1", "(0, 2)", "")) == "the shape [0, 2] has no elements");
    CHECK(refusal(pp::test::npy_bytes("|u1", "(-1, 2)", "")) ==
          "not a .npy file: its shape has no count at `-1, 2), }           `");
    const auto header = [](const std::string& text) {
      return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(text.size()) + '\0' + text;
    };
    CHECK(refusal(header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}") + std::string(16, '\0')) ==
          "in Fortran order; write it with numpy.ascontiguousarray");
    CHECK(refusal(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}")) ==
          "elements with several fields; give an array of numbers");
    CHECK(refusal(header("{'descr': '<f4', 'shape': (2,)}")) ==
          "not a .npy file: its header lacks fortran_order");
    CHECK(refusal(header("{'descr': '<f4', 'descr': '<f4'}")) ==
          "not a .npy file: its header has \"descr\" twice, or without need");
    CHECK(refusal(header("{'descr': '<f4")) == "not a .npy file: a name in its header has no end");
    CHECK(refusal(header("[1]")) == "not a .npy file: its header lacks `{` before `[1]`");
  }

  TEST_CASE("CSV: numbers under a header line, the last column or a named one is the target") {
    Case c(classifier({2}));
    c.request.path = c.folder.write("t.csv", "a,\"b\",class\r\n1.5, -2e1 ,2\r\n+3,\"4\",0\r\n\r\n");
    DataFiles files = c.open();
    CHECK(files.training.samples == 2);
    CHECK(values<double>(files.training, files.training.inputs[0]) == std::vector<double>{1.5, -20, 3, 4});
    CHECK(values<std::int64_t>(files.training, files.training.targets[0]) == std::vector<std::int64_t>{2, 0});
    // 2 lines of 3 numbers of 8 bytes.
    CHECK(files.bytes_in_memory == 48);
    c.folder.write("t.csv", "a,class,b\n1,2,3\n4,0,6");
    c.request.target_column = "class";
    files = c.open();
    CHECK(values<double>(files.training, files.training.inputs[0]) == std::vector<double>{1, 3, 4, 6});
    CHECK(values<std::int64_t>(files.training, files.training.targets[0]) == std::vector<std::int64_t>{2, 0});
  }

  TEST_CASE("CSV: a byte order mark belongs to no name") {
    Case c(classifier({2}));
    c.request.target_column = "a";
    c.request.path = c.folder.write("t.csv", "\xEF\xBB\xBF\"a\",b,c\r\n2,1,3\r\n");
    const DataFiles files = c.open();
    CHECK(values<double>(files.training, files.training.inputs[0]) == std::vector<double>{1, 3});
    CHECK(values<std::int64_t>(files.training, files.training.targets[0]) == std::vector<std::int64_t>{2});
    c.request.path = c.folder.write("u.csv", std::string("\xFF\xFE"
                                                         "a\0,\0",
                                                         6));
    CHECK(c.refusal() == "DIR/u.csv: is text in UTF-16; save it as UTF-8");
  }

  TEST_CASE("CSV: errors name line and column") {
    Case c(classifier({2}));
    c.request.path = c.folder.path() / "t.csv";
    const auto refusal = [&](const std::string& text) {
      const std::string message = c.refusal_of("t.csv", text);
      return message.starts_with("DIR/t.csv: ") ? message.substr(11) : message;
    };
    CHECK(refusal("a,b,y\n1,2,1\n3,nan,1\n") == "line 3, column \"b\": \"nan\" is not a finite number");
    CHECK(refusal("a,b,y\n1,inf,1\n") == "line 2, column \"b\": \"inf\" is not a finite number");
    CHECK(refusal("a,b,y\n1,,1\n") == "line 2, column \"b\": \"\" is not a finite number");
    CHECK(refusal("a,b,y\n1,2x,1\n") == "line 2, column \"b\": \"2x\" is not a finite number");
    CHECK(refusal("a,b,y\n1,2,1.5\n") ==
          "line 2, column \"y\": \"1.5\" is not an integer, as the model needs here");
    CHECK(refusal("a,b,y\n1,2,1\n1,2,3\n") ==
          "line 3, column \"y\": 3 in sample 1, the model's target \"y\" takes 0 to 2; correct the data or "
          "plan a "
          "model "
          "with more");
    CHECK(refusal("a,b,y\n1,2\n") == "line 2 has 2 columns, the header 3");
    CHECK(refusal("a,b,y\n1,2,1\n\n1,2,1\n") == "line 3 is empty; only the end of the file may be");
    CHECK(refusal("1,2,1\n1,2,1\n") ==
          "line 1 holds numbers; give a header line with the names of the columns");
    CHECK(refusal("a,b,y\n") == "a header line without lines of numbers");
    CHECK(refusal("") == "empty");
    CHECK(refusal("a,y\n1,1\n") ==
          "1 columns beside the target \"y\", the model's input \"x\" has 2 numbers; choose another "
          "--target-column, or "
          "plan a model for this data");
    c.request.target_column = "z";
    CHECK(refusal("a,b,y\n1,2,1\n") == "no column is named \"z\"; it has a, b, y");
  }

  TEST_CASE("cross_entropy takes its ignored label beside the classes, and no other") {
    const Labelled plain(pp::test::classifier({2}));
    CHECK(plain.refusal_of("train-labels.idx", labels({0, -100, 2})) == "accepted");
    CHECK(
        plain.refusal_of("train-labels.idx", labels({0, -100, -1})) ==
        "DIR/train-labels.idx: byte 10: -1 in sample 2, the model's target \"y\" takes 0 to 2, and -100 for no "
        "label; correct the data or plan a model with more");
    ModelGraph graph = pp::test::classifier({2});
    graph.loss->attributes["ignore_index"] = std::int64_t{-1};
    const Labelled other(graph);
    CHECK(other.refusal_of("train-labels.idx", labels({0, -1, 2})) == "accepted");
    CHECK(other.refusal_of("train-labels.idx", labels({0, -100, 2})) != "accepted");
  }

  TEST_CASE("labels that an embedding reads as well are classes, all of them") {
    ModelGraph graph = pp::test::language(5);
    const TensorSource next{TensorSource::Kind::target, 0, 0}, tokens{TensorSource::Kind::input, 0, 0};
    CHECK(index_range(resolve(graph), next).ignored == -100);
    graph.loss->inputs[1] = "tokens";
    graph.targets.clear();
    CHECK(index_range(resolve(graph), tokens).limit == 5);
    CHECK_FALSE(index_range(resolve(graph), tokens).ignored.has_value());
  }
}

}  // namespace formats_test
