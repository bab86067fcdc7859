// pp-profile show, diff, merge and models: what they print, write and refuse.
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/file.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/profile.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"
#include "tests/support/xml.h"

#include "tests/support/doctest.h"

namespace profile_reports_test {
namespace {

using pp::Profile;
using pp::test::Outcome;

constexpr std::array kTimes{4.0, 1.0, 3.0};  // ms forward at 16 samples; backward takes twice that

/// The sample profile at some of its sizes, in place of 1, 2, 4, 8, 16.
Profile sample(const std::vector<std::int64_t>& sizes) {
  Profile profile = pp::test::sample_profile(kTimes);
  const auto unwanted = [&](std::int64_t size) { return std::ranges::find(sizes, size) == sizes.end(); };
  std::erase_if(profile.micro_batch_sizes, unwanted);
  for (pp::LayerProfile& layer : profile.layers)
    std::erase_if(layer.points, [&](const pp::LayerPoint& point) { return unwanted(point.micro_batch_size); });
  return profile;
}

struct Folder : pp::test::TemporaryFolder {
  void write(const std::string& name, const Profile& profile) const {
    pp::write_file(path() / name, pp::dump_json(to_json(profile)));
  }
  Profile read(const std::string& name) const { return pp::parse_profile(pp::read_file(path() / name)); }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-profile"), arguments, path());
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The last line of what was said on stderr.
std::string refusal(const Outcome& outcome) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  return outcome.err;
}

/// Characters of the longest line; UTF-8 continuation bytes do not count.
std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto continued = std::ranges::count_if(line, [](char c) { return (c & 0xC0) == 0x80; });
    longest = std::max(longest, line.size() - static_cast<std::size_t>(continued));
  }
  return longest;
}

}  // namespace

TEST_SUITE("apps/profile_reports") {
  TEST_CASE("show names the layers that take most, within 100 columns, with bars beside the largest") {
    const Folder folder;
    folder.write("p.json", sample({8, 16}));
    const Outcome outcome = folder.run({"show", "p.json", "--sort", "time"});
    CHECK(outcome.code == 0);
    // 12 + 3 + 9 ms; 3 x 4096 bytes saved and 2 x 16640 bytes of weights are 44.5 KiB, 20.25 in each linear
    // layer.
    CHECK(has(outcome.out, "time 24 ms, most of it: layer0 50.0 %, layer2 37.5 %, layer1 12.5 %\n"));
    CHECK(has(outcome.out, "memory 44.5 KiB, most of it: layer0 45.5 %, layer2 45.5 %, layer1 9.0 %\n"));
    CHECK(outcome.out.find("layer0 ") < outcome.out.find("layer2 "));
    CHECK(has(outcome.out, "█"));
    CHECK_FALSE(has(outcome.out, "\033["));
    CHECK(longest_line(outcome.out) <= 100);
    CHECK(has(folder.run({"show", "p.json", "--color", "always"}).out, "\033[36m█"));
    CHECK(has(folder.run({"show", "p.json", "--limit", "2"}).out, "(1 more layers)\n"));
  }

  TEST_CASE("show warns on stderr of what makes the profile doubtful") {
    const Folder folder;
    Profile profile = sample({8, 16});
    profile.estimated = {"saved_bytes"};
    profile.whole_model = {{8, profile.layers[0].points[0].forward, profile.layers[0].points[0].backward, {}}};
    folder.write("p.json", profile);
    // At 8 samples the layers take 12 ms, the whole model is said to take 6 ms.
    CHECK(folder.run({"show", "p.json"}).err ==
          "pp-profile: warning: the layers at micro-batch size 8 add up to 200 % of the whole model's time: "
          "predictions will be off by as much; end other programs, or raise --budget\n"
          "pp-profile: warning: assumed, not measured: saved_bytes; profile the model itself for plans that "
          "can be "
          "relied on\n");
    CHECK(folder.run({"show", "p.json", "-q"}).err.empty());
  }

  TEST_CASE("show --svg writes a picture beside the table, or alone to stdout") {
    const Folder folder;
    folder.write("p.json", sample({8, 16}));
    CHECK(has(folder.run({"show", "p.json", "--svg", "p.svg"}).out, "layer0"));
    const std::string svg = pp::read_file(folder.path() / "p.svg");
    CHECK(pp::test::xml_error(svg).empty());
    CHECK(folder.run({"show", "p.json", "--svg", "-"}).out == svg);
    CHECK(has(svg, ">12 ms</text>"));
  }

  TEST_CASE("diff prints ratios and what else differs, exit 0") {
    const Folder folder;
    Profile other = sample({4, 16});
    other.device.name = "another";
    for (pp::LayerPoint& point : other.layers[2].points) point.forward = point.backward;
    folder.write("a.json", sample({8, 16}));
    folder.write("b.json", other);
    const Outcome outcome = folder.run({"diff", "a.json", "b.json"});
    CHECK(outcome.code == 0);
    // layer2: 3 + 6 ms became 6 + 6.
    CHECK(outcome.out ==
          "differs            first    second\n"
          "-----------------  -------  -------\n"
          "device name        sample   another\n"
          "micro-batch sizes  [8, 16]  [4, 16]\n"
          "\n"
          "forward + backward, weights + saved, per micro-batch of 16 samples:\n"
          "layer   first ms  second ms  second/first  in spread  first KiB  second KiB\n"
          "------  --------  ---------  ------------  ---------  ---------  ----------\n"
          "layer0     12.00      12.00          1.00        yes      20.25       20.25\n"
          "layer1     3.000      3.000          1.00        yes      4.000       4.000\n"
          "layer2     9.000      12.00          1.33         no      20.25       20.25\n"
          "total      24.00      27.00          1.12         no      44.50       44.50\n"
          "\n"
          "median difference of a layer 0.0 %; 2 of 3 layers differ by no more than their spread\n");
    const pp::Json json = pp::parse_json(folder.run({"diff", "a.json", "b.json", "--json"}).out);
    CHECK(json["total"]["ratio"].get<double>() == doctest::Approx(27.0 / 24));
    CHECK(json["differences"].size() == 2);
  }

  TEST_CASE("merge adds sizes and writes a profile that can be merged again") {
    const Folder folder;
    folder.write("a.json", sample({1, 4}));
    folder.write("b.json", sample({2}));
    folder.write("c.json", sample({2, 16}));
    const Outcome outcome = folder.run({"merge", "a.json", "b.json", "-o", "ab.json"});
    CHECK(outcome.code == 0);
    CHECK(has(outcome.out, "sample: 3 layers"));
    CHECK(folder.run({"merge", "ab.json", "c.json", "--overlap", "second", "-o", "all.json"}).code == 0);
    CHECK(folder.read("all.json") == sample({1, 2, 4, 16}));
  }

  TEST_CASE("what cannot be merged or compared is refused, and nothing is written") {
    const Folder folder;
    Profile other = sample({2});
    other.device.kind = pp::DeviceKind::cuda;
    folder.write("a.json", sample({1, 4}));
    folder.write("b.json", other);
    CHECK(refusal(folder.run({"merge", "a.json", "b.json", "-o", "c.json"})) ==
          "pp-profile: error: device kind: \"cpu\" and \"cuda\" cannot be merged; measure all sizes on one "
          "kind of "
          "device\n");
    CHECK(refusal(folder.run({"merge", "a.json", "a.json", "-o", "c.json"})) ==
          "pp-profile: error: both profiles have micro-batch sizes [1, 4]; say whose to keep with --overlap "
          "first or "
          "--overlap second\n");
    CHECK(refusal(folder.run({"merge", "a.json", "a.json", "--overlap", "third", "-o", "c.json"})) ==
          "pp-profile: error: --overlap: unknown name \"third\"; use one of refuse, first, second\n");
    CHECK(refusal(folder.run({"merge", "a.json", "b.json"})) ==
          "pp-profile: error: --output is required; see pp-profile merge --help\n");
    CHECK(refusal(folder.run({"diff", "a.json", "b.json"})) ==
          "pp-profile: error: the profiles have no micro-batch size in common: [1, 4] and [2]; profile one of "
          "them "
          "at a size of the other\n");
    CHECK(refusal(folder.run({"diff", "a.json", "missing.json"})) ==
          "pp-profile: error: missing.json: cannot be read: No such file or directory\n");
    CHECK(refusal(folder.run({"show", "a.json", "--micro-batch-size", "3"})) ==
          "pp-profile: error: --micro-batch-size: 3 was not measured; use one of [1, 4]\n");
    CHECK_FALSE(std::filesystem::exists(folder.path() / "c.json"));
  }

  TEST_CASE("a profile of another version of the model is refused with both hashes") {
    const Folder folder;
    Profile profile = sample({1});
    const std::string actual = profile.model_hash;
    profile.model_hash = "sha256:0";
    folder.write("a.json", profile);
    CHECK(refusal(folder.run({"show", "a.json"})) ==
          "pp-profile: error: a.json: /model_hash: is sha256:0, but the model in this file has " + actual +
              "; the model was changed after profiling, profile it again\n");
  }

  TEST_CASE("models --ops lists every operation and attribute in full within 100 columns") {
    const Outcome outcome = Folder().run({"models", "--ops"});
    CHECK(outcome.code == 0);
    CHECK_FALSE(has(outcome.out, "..."));
    CHECK(longest_line(outcome.out) <= 100);
    for (const pp::OpRow& op : pp::op_table()) {
      CHECK(has(outcome.out, std::string(op.name)));
      for (const pp::AttributeSpec& attribute : op.attributes)
        CHECK(has(outcome.out, std::string(attribute.name)));
    }
    const std::string families = Folder().run({"models"}).out;
    CHECK_FALSE(has(families, ",...,"));
    CHECK(longest_line(families) <= 100);
  }

  TEST_CASE("models --json has the families with their arguments, --ops --json the operations") {
    const pp::Json families = pp::parse_json(Folder().run({"models", "--json"}).out);
    const auto resnet = std::ranges::find(families, "resnet18", [](const pp::Json& j) { return j["name"]; });
    REQUIRE(resnet != families.end());
    // README: the image of resnet18 has 224 pixels a side.
    const auto& arguments = (*resnet)["arguments"];
    const auto image = std::ranges::find(arguments, "image", [](const pp::Json& j) { return j["name"]; });
    REQUIRE(image != arguments.end());
    CHECK((*image)["default"] == 224);
    const pp::Json operations = pp::parse_json(Folder().run({"models", "--ops", "--json"}).out);
    CHECK(operations.size() == pp::op_table().size());
    const auto pool = std::ranges::find(operations, "max_pool2d", [](const pp::Json& j) { return j["name"]; });
    REQUIRE(pool != operations.end());
    CHECK((*pool)["attributes"][0]["name"] == "kernel_size");
    CHECK((*pool)["attributes"][0]["required"] == true);
    CHECK((*pool)["attributes"][1]["default_from"] == "kernel_size");
  }
}

}  // namespace profile_reports_test
