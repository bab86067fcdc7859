#include "libplan/draw/timeline_svg.h"

#include <vector>

#include "libprofile/core/svg_writer.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/xml.h"

#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using pp::test::xml_error;
using test::equal_stages;
using test::straight;

std::string svg_of(const SimulationInput& input, const SvgOptions& options) {
  const SimulationResult result = simulate(input);
  return timeline_svg(result, memory_curves(input, result), options);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_SUITE("libplan/draw/timeline svg") {
  TEST_CASE("boxes stand at their times") {
    // 796 pixels, 84 of them for names and 112 for figures: 600 for 6 s, 100 a second. One line of legend, so
    // rows begin at 72 + 34 = 106; they are 30 high and 14 apart, for the arrows. F1.0 1-2 s, B0.0 4-6 s.
    const std::string svg = svg_of(equal_stages(straight("gpipe", 2, 1)), {"a plan", 796});
    CHECK(has(svg, R"(<rect x="184" y="150" width="100" height="30" class="F0"><title>F1.0 forward
worker 1, 1000 to 2000 ms: 1 s</title></rect>)"));
    CHECK(has(svg, R"(<rect x="484" y="106" width="200" height="30" class="B0"><title>B0.0 backward
worker 0, 4000 to 6000 ms: 2 s</title></rect>)"));
    CHECK(has(svg, ">F0</text>"));
    CHECK(has(svg, ">idle 50.0 %</text>"));
    CHECK(has(svg, "makespan 6 s, bubble 50.0 % (1 - busy / (workers x makespan))"));
  }

  TEST_CASE("the picture is well-formed, also with a title full of markup") {
    SimulationInput input = equal_stages(straight("1f1b", 3, 4));
    for (StageCosts& stage : input.stages) stage.saved = stage.weights = Bytes(10);
    const std::string svg = svg_of(input, {"</svg> & <b> \"x\"", 1200});
    CHECK(xml_error(svg).empty());
    CHECK(has(svg, "&lt;/svg&gt; &amp; &lt;b&gt; &quot;x&quot;"));
    CHECK(xml_error("<a><b></a>") == "/a");
  }

  TEST_CASE("the same simulation gives the same bytes") {
    const SimulationInput input = equal_stages(straight("1f1b", 4, 8));
    CHECK(svg_of(input, {"t", 900}) == svg_of(input, {"t", 900}));
  }

  TEST_CASE("only kinds that occur are in the legend") {
    const std::string svg = svg_of(equal_stages(straight("gpipe", 2, 2)), {"t", 1200});
    CHECK(has(svg, ">F forward<"));
    CHECK(has(svg, ">idle (bubble)<"));
    CHECK_FALSE(has(svg, ">W weight gradient<"));
    CHECK_FALSE(has(svg, "later stages"));
    CHECK_FALSE(has(svg, "too short to draw"));
  }

  TEST_CASE("stages of one worker differ in shade") {
    const std::string svg =
        svg_of(equal_stages(test::written({"F0.0 F1.0 B1.0 B0.0 U0 U1"}, {{0}, {0}}, 1)), {"t", 1200});
    CHECK(has(svg, ".F0{fill:#56b4e9;"));
    CHECK(has(svg, ".F1{fill:#bbe1f6;"));  // 60 % white: 0x56 = 86, 86 + 0.6 * 169 = 187.4 = 0xbb
    CHECK(has(svg, R"(class="F1"><title>F1.0 forward)"));
    CHECK(has(svg, "lighter: a worker's later stages"));
    CHECK(has(svg, ">B1.0</text>"));
  }

  TEST_CASE("messages are arrows while they can be followed") {
    // gpipe: 2 messages per micro-batch and boundary; 3 * 2 * 66 = 396, 3 * 2 * 67 = 402.
    const auto arrows = [](int micro_batches) {
      return count_of(svg_of(equal_stages(straight("gpipe", 4, micro_batches)), {"t", 1200}),
                      "<title>activation of");
    };
    CHECK(arrows(66) == 3 * 66);
    CHECK(arrows(67) == 0);
    CHECK(arrows(1) == 3);
  }

  TEST_CASE("a row is named after its stage, layers, worker and device") {
    const SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    SvgOptions options{"t", 1200};
    const std::string alone = svg_of(input, options);
    CHECK(has(alone, ">stage 0</text>"));
    CHECK(has(alone, ">worker 0</text>"));
    options.stage_layers = {"conv1 .. conv3", "relu3 .. fc2"};
    options.devices = {"cpu:0", "cpu:1"};
    const std::string svg = svg_of(input, options);
    CHECK(has(svg, ">stage 0: conv1 .. conv3</text>"));
    CHECK(has(svg, ">worker 1, cpu:1</text>"));
    CHECK(has(svg, "<title>worker 1, cpu:1\nstage 1: relu3 .. fc2\nbusy 3 s, idle 50.0 %</title>"));
    // The longest name has 23 letters of 6.82 pixels, 16 more are for its distance.
    CHECK(has(svg, R"(<rect x="172.86" y="106")"));
  }

  TEST_CASE("replicas that do the same at the same times share a row") {
    const std::string svg =
        svg_of(equal_stages(test::written({"F0.0 B0.0", "F0.1 B0.1"}, {{0, 1}}, 2)), {"t", 1200});
    CHECK(has(svg, ">workers 0, 1</text>"));
    CHECK(has(svg, ">F0-1</text>"));
    CHECK(count_of(svg, R"(class="F0"><title>)") == 1);
    // Another order: two rows.
    const std::string apart = svg_of(
        equal_stages(test::written({"F0.0 F0.2 B0.0 B0.2", "F0.1 B0.1 F0.3 B0.3"}, {{0, 1}}, 4)), {"t", 1200});
    CHECK(has(apart, ">worker 1</text>"));
    CHECK(count_of(apart, R"(class="F0"><title>)") == 4);
  }

  TEST_CASE("numbers stand on all boxes of a kind, or on none, or on every so many of the widest") {
    // 4 stages, 40 micro-batches: 43 * 3 s in 1004 pixels, 7.78 a second. A forward of 7.78 pixels cannot hold
    // two digits of 8 points (9.92), a backward of 15.6 can.
    const std::string svg = svg_of(equal_stages(straight("1f1b", 4, 40)), {"t", 1200});
    CHECK(count_of(svg, R"(class="n">)") == 4 * 40);
    CHECK(count_of(svg, ">39</text>") == 4);
    // 100 micro-batches: 103 * 3 s, a backward has 6.5 pixels; two of them hold two digits.
    const std::string narrow = svg_of(equal_stages(straight("1f1b", 4, 100)), {"t", 1200});
    CHECK(count_of(narrow, R"(class="n">)") == 4 * 50);
    CHECK(count_of(narrow, ">98</text>") == 4);
    CHECK(count_of(narrow, ">99</text>") == 0);
  }

  TEST_CASE("a device's limit near what is held is a line, one far above it a figure") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    for (StageCosts& stage : input.stages) {
      stage.weights = Bytes(100);
      stage.saved = Bytes(10);
    }
    SvgOptions options{"t", 1200};
    options.limits = {Bytes(150), Bytes(150)};  // 120 are held
    const std::string near = svg_of(input, options);
    CHECK(has(near, ">memory, full height 150 B:<"));
    CHECK(count_of(near, R"(class="limit"><title>limit of the device: 150 B</title>)") == 2);
    CHECK(has(near, ">of 150 B</text>"));
    options.limits = {Bytes(1000), Bytes(1000)};
    const std::string far = svg_of(input, options);
    CHECK(has(far, ">memory, full height 120 B:<"));
    CHECK_FALSE(has(far, R"(class="limit")"));
    CHECK(has(far, ">of 1000 B</text>"));
  }

  TEST_CASE("memory is stacked by part, with the peak and what it is made of") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    for (StageCosts& stage : input.stages) {
      stage.weights = Bytes(100);
      stage.saved = Bytes(10);
    }
    const std::string svg = svg_of(input, {"t", 1200});
    CHECK(has(svg, ">memory, full height 120 B:<"));
    CHECK(has(svg, "<title>peak 120 B:\nweights 100 B\nsaved 20 B</title>"));
    CHECK(count_of(svg, R"(class="m0"><title>)") == 2);  // weights, one area a worker
    CHECK_FALSE(has(svg, R"(class="m1"><title>)"));      // no gradients
    CHECK_FALSE(has(svg_of(equal_stages(straight("gpipe", 2, 2)), {"t", 1200}), ">memory, full"));
  }

  // As a report has them: the all-reduce of tied weights names the first stage of its group, on every worker.
  TEST_CASE("a row is named after the stages that its worker computes") {
    SimulationResult result;
    result.makespan = Seconds(4);
    result.busy = {Seconds(4), Seconds(4)};
    for (int w : {0, 1}) {
      result.ops.push_back({WorkerId{w}, {OpKind::forward, StageId{w}, 0}, Seconds(0), Seconds(2)});
      result.ops.push_back({WorkerId{w}, {OpKind::tied_all_reduce, StageId{0}, 0}, Seconds(2), Seconds(4)});
    }
    const std::string svg = timeline_svg(result, {}, {"t", 1200});
    CHECK(xml_error(svg).empty());
    CHECK(has(svg, ">stage 1</text>"));
    CHECK_FALSE(has(svg, "stages"));
    CHECK_FALSE(has(svg, "lighter: a worker's later stages"));
  }

  TEST_CASE("several timelines have one time axis, one scale of memory and one margin") {
    // Of 6 s and, with micro-batches twice as long, 12 s: a forward of 1 s is half as wide as one of 2 s.
    SimulationInput brief = equal_stages(straight("gpipe", 2, 1)), lengthy = brief;
    for (StageCosts& stage : lengthy.stages) stage = test::costs(2, 4);
    for (StageCosts& stage : brief.stages) stage.weights = Bytes(100);
    for (StageCosts& stage : lengthy.stages) stage.weights = Bytes(300);
    const SimulationResult first = simulate(brief), second = simulate(lengthy);
    const std::vector<MemoryCurve> held = memory_curves(brief, first), more = memory_curves(lengthy, second);
    SvgOptions named{"b", 800};
    named.stage_layers = {"embedding .. block1.attention", "block1.mlp .. head"};
    const std::vector<SvgTimeline> both{{&first, held, {"a", 800}}, {&second, more, named}};
    const std::string svg = timelines_svg(both);
    CHECK(xml_error(svg).empty());
    CHECK(count_of(svg, "<svg ") == 1);
    CHECK(count_of(svg, ">memory, full height 300 B:<") == 2);
    const auto number_before = [&](const std::string& key, const std::string& tooltip) {
      return std::stod(svg.substr(svg.rfind(key, svg.find(tooltip)) + key.size()));
    };
    const std::string brief_box = "F0.0 forward\nworker 0, 0 to 1 s: 1 s";
    const std::string lengthy_box = "F0.0 forward\nworker 0, 0 to 2 s: 2 s";
    REQUIRE(has(svg, brief_box));
    REQUIRE(has(svg, lengthy_box));
    CHECK(2 * number_before(" width=\"", brief_box) ==
          doctest::Approx(number_before(" width=\"", lengthy_box)).epsilon(0.001));
    CHECK(number_before("<rect x=\"", brief_box) == number_before("<rect x=\"", lengthy_box));
    CHECK(number_before("<rect x=\"", brief_box) > 84);  // the least
  }

  TEST_CASE("of more than 16 workers those of the same stages share a row, with their count") {
    // Two replicas whose order differs: 9 stages of 2 workers are 18, 8 are 16.
    const auto picture = [](int stages) {
      std::vector<std::string> programs;
      std::vector<std::vector<int>> places;
      for (int s = 0; s < stages; ++s) {
        const std::string at = std::to_string(s);
        programs.push_back("F" + at + ".0 F" + at + ".2 B" + at + ".0 B" + at + ".2");
        programs.push_back("F" + at + ".1 B" + at + ".1 F" + at + ".3 B" + at + ".3");
        places.push_back({2 * s, 2 * s + 1});
      }
      return svg_of(equal_stages(test::written(programs, places, 4)), {"t", 1200});
    };
    const std::string folded = picture(9);
    CHECK(count_of(folded, ">idle ") == 9 + 1);  // one a row, one in the legend
    CHECK(has(folded, "2 replicas, drawn: worker 0\nstage 0\n"));
    CHECK(count_of(picture(8), ">idle ") == 16 + 1);
  }

  TEST_CASE("the two directions of chimera have a row for every worker") {
    // Workers 0 and 3 have stages 0 and 3, and do the same at the same times in opposite directions.
    const std::string svg = svg_of(equal_stages(straight("chimera", 4, 8)), {"t", 1200});
    for (const char* worker : {">worker 0<", ">worker 1<", ">worker 2<", ">worker 3<"}) CHECK(has(svg, worker));
  }

  TEST_CASE("boxes of every kind have their stage, or of none") {
    // One worker with two stages: F 1 s, B 4 s each, 10 s. 436 pixels leave 240: a forward of 24 holds `F0.0`
    // in the small font (4 letters of 4.96), a backward of 96 in the usual one (4 of 6.82).
    const auto picture = [](double backward, double width) {
      SimulationInput input = equal_stages(test::written({"F0.0 F1.0 B1.0 B0.0 U0 U1"}, {{0}, {0}}, 1));
      for (StageCosts& stage : input.stages) stage = test::costs(1, backward);
      return svg_of(input, {"t", width});
    };
    const std::string wide = picture(4, 436);
    CHECK(has(wide, R"(class="n">F0.0<)"));
    CHECK(has(wide, R"(class="c">B0.0<)"));
    // 204 pixels: a forward of 20.4 holds the small `0.0` (14.88) alone.
    CHECK(has(picture(4, 400), R"(class="n">0.0<)"));
    // 82 s: no forward holds its stage, so backwards do without, too.
    const std::string narrow = picture(40, 400);
    CHECK(has(narrow, ">B0<"));
    CHECK_FALSE(has(narrow, ">B0.0<"));
  }

  TEST_CASE("short operations are drawn as their shares, whatever their number") {
    SimulationInput input = equal_stages(straight("1f1b", 4, 5000));
    for (StageCosts& stage : input.stages) stage.saved = Bytes(10);
    const std::string svg = svg_of(input, {"t", 1200});  // 40,000 operations in 1004 pixels
    CHECK(xml_error(svg).empty());
    CHECK(svg.size() < 2'000'000);
    CHECK(has(svg, "operations, mostly backward"));
    CHECK(has(svg, "too short to draw"));
  }

  TEST_CASE("a hundred workers, one operation and no time at all are drawn") {
    for (const auto& [workers, micro_batches] : {std::pair{100, 50}, std::pair{1, 1}}) {
      CHECK(xml_error(svg_of(equal_stages(straight("1f1b", workers, micro_batches)), {"t", 1200})).empty());
    }
    SimulationInput nothing = equal_stages(straight("gpipe", 2, 2));
    nothing.stages.assign(2, {});
    const std::string svg = svg_of(nothing, {"t", 1200});
    CHECK(xml_error(svg).empty());
    CHECK_FALSE(has(svg, "nan"));
  }
}

}  // namespace
}  // namespace pp::plan
