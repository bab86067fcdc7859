// Which files of a folder are read as what, and which part of them.
#include <cstring>
#include <string>
#include <vector>

#include "librun/data/readers.h"
#include "tests/librun/data/data_case.h"
#include "tests/librun/data_bytes.h"
#include "tests/support/doctest.h"

namespace format_choice_test {

using namespace pp;
using namespace pp::run;
using namespace pp::test;

TEST_SUITE("librun/data/format_choice") {
  TEST_CASE("the share for tests is taken from the end of the samples") {
    Case c(classifier({1}));
    c.request.path = c.folder.write("t.csv", "a,y\n0,0\n1,0\n2,0\n3,0\n4,0\n");
    c.request.test_share = 0.5;  // 2 of 5
    DataFiles files = c.open();
    CHECK(values<double>(files.training, files.training.inputs[0]) == std::vector<double>{0, 1, 2});
    REQUIRE(files.test);
    CHECK(values<double>(*files.test, files.test->inputs[0]) == std::vector<double>{3, 4});
    c.request.path = c.folder.path();
    c.folder.write("train.csv", "a,y\n0,0\n1,0\n");
    c.folder.write("test.csv", "a,y\n0,0\n1,0\n");
    CHECK(c.refusal(ErrorKind::usage) == "DIR: has a test set; leave out --test-share");
  }

  TEST_CASE("a folder of two formats needs a choice; options of another format are refused") {
    Case c(classifier({1}));
    c.folder.write("train.csv", "a,y\n1,0\n");
    c.folder.write("x.npy", pp::test::npy_bytes("<f8", "(1, 1)", pp::test::bytes_of<double>({7})));
    c.folder.write("y.npy", pp::test::npy_bytes("<i8", "(1,)", pp::test::bytes_of<std::int64_t>({2})));
    CHECK(c.refusal(ErrorKind::usage) == "DIR: has data as npy and as csv; choose with --data-format");
    c.request.format = "csv";
    CHECK(c.open().training.inputs[0].type == ElementType::float64);
    c.request.format = "npy";
    CHECK(c.refusal() == "accepted");
    c.request.target_column = "y";
    CHECK(c.refusal(ErrorKind::usage) == "--target-column is for csv, DIR is read as npy");
    c.request.target_column = "";
    c.request.token_type = "uint8";
    CHECK(c.refusal(ErrorKind::usage) == "--token-type is for tokens, DIR is read as npy");
    c.request.format = "xml";
    CHECK(c.refusal(ErrorKind::usage) ==
          "--data-format: unknown name \"xml\"; use one of idx, cifar10, safetensors, npy, csv, tokens");
  }

  TEST_CASE("a single file is known by its extension alone") {
    Case c(classifier({1}));
    c.request.path = c.folder.write("data.xyz", "a,y\n1,0\n");
    CHECK(c.refusal() ==
          "DIR/data.xyz: a single file is read as .safetensors or .csv, by --data-format, or as tokens by "
          "--token-type; scripts/export-data makes .safetensors of what a DataLoader reads");
    c.request.format = "csv";
    CHECK(c.refusal() == "accepted");
    c.request.format = "idx";
    CHECK(c.refusal() == "DIR/data.xyz: idx data are a folder");
  }

  TEST_CASE("a path that the system refuses is refused with its words") {
    Case c(classifier({1}));
    const std::string name(5000, 'a');
    c.request.path = name;
    CHECK(c.refusal() == name + ": cannot be looked at: File name too long");
  }

  TEST_CASE("formats of one input and one target refuse other models") {
    ModelGraph graph = classifier({1});
    graph.inputs.push_back({"z", {{1}, DType::float32}});
    graph.layers.insert(graph.layers.begin(), {"sum", "add", {"x", "z"}, {}, ""});
    graph.layers[1].inputs = {"sum"};
    Case c(graph);
    CHECK(c.refusal_of("train.csv", "a,y\n1,0\n") ==
          "DIR: the columns of a table are one input and one target, the model has 2 inputs and 1 targets; use "
          "safetensors, npy or --data synthetic");
  }

  TEST_CASE("what nobody reads is not asked for, in any format") {
    const auto alone = [](Case& c) {
      c.request.left_out = {c.model.graph.targets.front().name};
      return open_set(c.request, std::nullopt);
    };
    const auto has_no_targets = [](const SampleTable& table) {
      REQUIRE(table.targets.size() == 1);
      CHECK(table.targets[0].parts.empty());
    };
    SUBCASE("IDX: images without labels") {
      Case c(classifier({2}));
      c.folder.write("train-images.idx", idx_bytes(ElementType::uint8, {3, 2}, "abcdef"));
      const SampleTable table = alone(c);
      CHECK(table.samples == 3);
      CHECK(values<char>(table, table.inputs[0]) == std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f'});
      has_no_targets(table);
    }
    SUBCASE("CIFAR-10: labels that no model has are passed over") {
      Case c(classifier({3, 32, 32}));
      c.folder.write("data_batch_1.bin", "\x7f" + std::string(3072, 'a'));
      const SampleTable table = alone(c);
      CHECK(table.samples == 1);
      has_no_targets(table);
    }
    SUBCASE("safetensors and .npy") {
      Case c(classifier({1}));
      c.folder.write("train.safetensors",
                     pp::test::safetensors_bytes(R"({"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
                                                 pp::test::bytes_of({1.0F, 2.0F})));
      SampleTable table = alone(c);
      CHECK(values<float>(table, table.inputs[0]) == std::vector<float>{1, 2});
      has_no_targets(table);
      Case other(classifier({1}));
      other.folder.write("x.npy", pp::test::npy_bytes("<f4", "(2, 1)", pp::test::bytes_of({3.0F, 4.0F})));
      table = alone(other);
      CHECK(values<float>(table, table.inputs[0]) == std::vector<float>{3, 4});
      has_no_targets(table);
    }
    SUBCASE("CSV: the target's column may be there or not, and need not hold numbers") {
      for (const char* text : {"a,b\n1,2\n3,4\n", "a,b,kind\n1,2,cat\n3,4,dog\n"}) {
        Case c(classifier({2}));
        c.folder.write("train.csv", text);
        const SampleTable table = alone(c);
        CHECK(values<double>(table, table.inputs[0]) == std::vector<double>{1, 2, 3, 4});
        has_no_targets(table);
      }
      Case c(classifier({2}));
      c.request.target_column = "a";
      c.folder.write("train.csv", "a,b,c\n1,2,3\n");
      const SampleTable table = alone(c);
      CHECK(values<double>(table, table.inputs[0]) == std::vector<double>{2, 3});
    }
    SUBCASE("tokens: no token has to follow the last window") {
      Case c(language(128));
      c.request.token_type = "uint8";
      c.folder.write("train.bin", "abcdefgh");
      const SampleTable table = alone(c);
      CHECK(table.samples == 2);
      CHECK(values<char>(table, table.inputs[0]) == std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'});
      has_no_targets(table);
    }
  }

  TEST_CASE("one set by itself: the test set where there is one, or the one that is asked for") {
    Case c(classifier({1}));
    c.folder.write("train.csv", "a,y\n1,0\n");
    const auto first = [&](std::optional<Subset> wanted) {
      const SampleTable table = open_set(c.request, wanted);
      return values<double>(table, table.inputs[0]).front();
    };
    CHECK(first(std::nullopt) == 1);
    const std::string refused = [&] {
      try {
        first(Subset::test);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    }();
    CHECK(refused == c.folder.path().string() + ": has no test set; leave out --subset test");
    c.folder.write("test.csv", "a,y\n2,0\n");
    CHECK(first(std::nullopt) == 2);
    CHECK(first(Subset::test) == 2);
    CHECK(first(Subset::training) == 1);
  }
}

}  // namespace format_choice_test
