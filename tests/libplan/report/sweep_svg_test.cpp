#include "libplan/report/sweep_svg.h"

#include "tests/support/xml.h"

#include "tests/support/doctest.h"

namespace pp::plan::sweep_svg_test {
namespace {

SweepRow planned(int devices, const std::string& schedule, int micro_batches, double step_s) {
  return {devices, schedule, micro_batches, SweepFigures{"2|2", "1-1", Seconds(step_s), 1, 0, Bytes(2048), 0}};
}

SweepRow refused(int devices, const std::string& schedule, int micro_batches) {
  return {devices, schedule, micro_batches, SweepFailure{SweepFailure::Kind::refused, "no"}};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_SUITE("libplan/report/sweep svg") {
  // 800 pixels, 84 at the left, 32 at the right and 18 inside the frame: 648 from 102 on. One line of legend,
  // so the frame is from 72 + 40 = 112 to 452; the slowest step stands 340 - 18 = 322 above the lower edge.
  TEST_CASE("points stand at the logarithm of the micro-batches and at their time") {
    // log2 of 1, 2, 8 is 0, 1, 3: 102, 102 + 216, 102 + 648; 0.2 s at 452 - 322, 0.1 s at 452 - 161.
    const std::vector<SweepRow> rows{planned(2, "1f1b", 8, 0.1), planned(2, "1f1b", 1, 0.2),
                                     planned(2, "1f1b", 2, 0.1)};
    const std::string svg = sweep_svg(rows, {"a model", 800});
    CHECK(has(svg, R"(<path d="M102 130L318 291L750 291" class="l c0 d0"/>)"));
    CHECK(has(svg, R"(<rect x="98.5" y="126.5" width="7" height="7" class="m c0"><title>1f1b, 2 devices, 1 )"
                   "micro-batch: 200 ms, bubble 0 %\nstages 2|2, replicas 1-1\npeak 2 KiB</title></rect>"));
    for (const std::string label : {"0", "50", "100", "150", "200"}) CHECK(has(svg, ">" + label + "</text>"));
    CHECK(has(svg, ">step, ms</text>"));
  }

  TEST_CASE("a combination without a plan interrupts its line and is counted") {
    const std::vector<SweepRow> rows{planned(2, "1f1b", 1, 0.2), refused(2, "1f1b", 2),
                                     planned(2, "1f1b", 8, 0.1), refused(2, "gpipe", 1)};
    const std::string svg = sweep_svg(rows, {"a model", 800});
    CHECK(has(svg, R"(<path d="M102 130M750 291" class="l c0 d0"/>)"));
    CHECK(has(svg, "2 of 4 combinations have no plan (×, why below)"));
    // A cross in the middle of the upper 18 pixels, above its micro-batches, says why.
    CHECK(has(svg, R"(<path d="M315 118L321 124M321 118L315 124" class="x c0"><title>1f1b, 2 devices, 2 micro-)"
                   "batches: refused\nno</title></path>"));
    CHECK(has(svg, R"(class="x c1"><title>gpipe, 2 devices, 1 micro-batch: refused)"));
  }

  TEST_CASE("colours tell schedules apart, dashes device counts") {
    const std::vector<SweepRow> rows{planned(2, "gpipe", 4, 0.2), planned(2, "1f1b", 4, 0.1),
                                     planned(4, "gpipe", 4, 0.1), planned(4, "1f1b", 4, 0.05)};
    const std::string svg = sweep_svg(rows, {"a model", 800});
    CHECK(has(svg, ".l.c0,.x.c0{stroke:#0072b2}"));
    CHECK(has(svg, ".l.c1,.x.c1{stroke:#e69f00}"));
    for (const std::string css : {"l c0 d0", "l c1 d0", "l c0 d1", "l c1 d1"})
      CHECK(has(svg, "class=\"" + css + "\""));
    CHECK(has(svg, ">2 devices</text>"));
    // One count alone stands in the middle: 102 + 324; the legend has a second line of 20 pixels.
    CHECK(has(svg, R"(d="M426 150" class="l c0 d0")"));
  }

  TEST_CASE("lines that coincide run side by side, and so do their points") {
    const std::vector<SweepRow> rows{planned(2, "gpipe", 1, 0.2), planned(2, "gpipe", 2, 0.1),
                                     planned(2, "1f1b", 1, 0.2), planned(2, "1f1b", 2, 0.1)};
    const std::string svg = sweep_svg(rows, {"a model", 800});
    // 3 pixels apart around 130 and 291; markers of 7 pixels 8 apart around 102.
    CHECK(has(svg, R"(<path d="M102 128.5L750 289.5" class="l c0 d0"/>)"));
    CHECK(has(svg, R"(<path d="M102 131.5L750 292.5" class="l c1 d0"/>)"));
    CHECK(has(svg, R"(<rect x="94.5" y="126.5" width="7" height="7" class="m c0">)"));
    CHECK(has(svg, R"(<rect x="102.5" y="126.5" width="7" height="7" class="m c1">)"));
  }

  TEST_CASE("the fastest point of a line has a ring, the fastest of all stands in the legend") {
    const std::vector<SweepRow> rows{planned(2, "gpipe", 1, 0.2), planned(2, "gpipe", 2, 0.1),
                                     planned(4, "gpipe", 1, 0.05), planned(4, "gpipe", 2, 0.15)};
    const std::string svg = sweep_svg(rows, {"a model", 800});
    // 0.1 s at 452 - 161 = 291, 0.05 s at 452 - 80.5 = 371.5; rings of 7 pixels.
    CHECK(has(svg, R"(<path d="M743 291a7 7 0 1 0 14 0a7 7 0 1 0 -14 0Z" class="best"/>)"));
    CHECK(has(svg, R"(<path d="M95 371.5a7 7 0 1 0 14 0a7 7 0 1 0 -14 0Z" class="best"/>)"));
    CHECK(has(svg, ">fastest (of all: gpipe, 4 devices, 1 micro-batch, 50 ms)</text>"));
  }

  TEST_CASE("the bubble stands below, on the same micro-batches") {
    std::vector<SweepRow> rows{planned(2, "1f1b", 1, 0.2), planned(2, "1f1b", 2, 0.1)};
    std::get<SweepFigures>(rows[0].result).bubble_fraction = 0.5;
    std::get<SweepFigures>(rows[1].result).bubble_fraction = 0.25;
    const std::string svg = sweep_svg(rows, {"a model", 800});
    // From 452 + 40 = 492 on, 150 high: 50 % stand 132 above 642, 25 % 66.
    CHECK(has(svg, R"(<path d="M102 510L750 576" class="l c0 d0"/>)"));
    for (const std::string label : {"0 %", "10 %", "50 %"}) CHECK(has(svg, ">" + label + "</text>"));
    CHECK(has(svg, ">bubble</text>"));
  }

  TEST_CASE("the highest peak stands below the bubble, in round numbers of a unit") {
    std::vector<SweepRow> rows{planned(2, "1f1b", 1, 0.2), planned(2, "1f1b", 2, 0.1)};
    std::get<SweepFigures>(rows[1].result).peak = Bytes(4096);
    const std::string svg = sweep_svg(rows, {"a model", 800});
    // From 642 + 40 = 682 on, 150 high: 4 KiB stand 132 above 832, 2 KiB 66.
    CHECK(has(svg, R"(<path d="M102 766L750 700" class="l c0 d0"/>)"));
    CHECK(has(svg, ">peak, KiB</text>"));
    for (const std::string label : {"1", "2", "3", "4"}) CHECK(has(svg, ">" + label + "</text>"));
  }

  TEST_CASE("why a combination has no plan stands below, with its number above the crosses") {
    std::vector<SweepRow> rows{planned(2, "1f1b", 1, 0.2), refused(2, "1f1b", 2), refused(2, "1f1b", 8)};
    std::get<SweepFailure>(rows[2].result).reason =
        "a long reason " + std::string(40, 'w') + ' ' + std::string(80, 'x');
    const std::string svg = sweep_svg(rows, {"a model", 800});
    CHECK(has(svg, ">(1)</text>"));
    CHECK(has(svg, ">(2)</text>"));
    CHECK(has(svg, ">(1) no</text>"));
    // 684 pixels hold 100 letters of 6.82: 4 + 14 + 40 of the words, the next 80 stand on a line of their own.
    CHECK(has(svg, ">(2) a long reason " + std::string(40, 'w') + "</text>"));
    CHECK(has(svg, ">" + std::string(80, 'x') + "</text>"));
  }

  TEST_CASE("where the number was free, a combination without a plan stands at the left edge") {
    const std::string svg = sweep_svg(
        std::vector<SweepRow>{planned(2, "1f1b", 2, 0.2), refused(4, "1f1b", 0), planned(8, "1f1b", 8, 0.1)},
        {"a model", 800});
    // The frame begins at 84; the others as without it, from 102 to 750. The legend has a second line of 20.
    CHECK(has(svg, R"(<path d="M81 138L87 144M87 138L81 144" class="x c0"><title>1f1b, 4 devices, any )"
                   "micro-batches: refused\nno</title></path>"));
    CHECK(has(svg, R"(text-anchor="middle" class="t">any</text>)"));
    CHECK(has(svg, R"(d="M102 150" class="l c0 d0")"));
    CHECK(has(svg, R"(d="M750 311" class="l c0 d2")"));
    CHECK(pp::test::xml_error(sweep_svg(std::vector<SweepRow>{refused(2, "1f1b", 0)}, {"none", 800})).empty());
  }

  TEST_CASE("labels of micro-batches do not touch") {
    std::vector<SweepRow> rows;
    for (int count = 1; count <= 200; ++count) rows.push_back(planned(2, "1f1b", count, 0.1));
    const std::string svg = sweep_svg(rows, {"a model", 800});
    CHECK(has(svg, ">100</text>"));
    CHECK_FALSE(has(svg, ">101</text>"));  // 648 * log2(1.01)/log2(200) = 1.2 pixels further
  }

  TEST_CASE("every picture is XML") {
    const std::vector<std::vector<SweepRow>> sweeps{
        {}, {refused(2, "1f1b", 4)}, {planned(1, "a<b & \"c\"", 3, 0.1), refused(2, "1f1b", 4)}};
    for (const std::vector<SweepRow>& rows : sweeps) {
      const std::string svg = sweep_svg(rows, {"x < y", 100});
      CHECK(svg.starts_with("<svg "));
      CHECK(pp::test::xml_error(svg).empty());
      CHECK(has(svg, "x &lt; y"));
    }
  }
}

}  // namespace
}  // namespace pp::plan::sweep_svg_test
