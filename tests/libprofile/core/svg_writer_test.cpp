#include "libprofile/core/svg_writer.h"

#include <cmath>

#include "libprofile/core/error.h"

#include "tests/support/doctest.h"

namespace pp {
namespace {

TEST_SUITE("libprofile/core/svg_writer") {
  TEST_CASE("numbers have two decimals at most") {
    CHECK(svg_number(1) == "1");
    CHECK(svg_number(0.5) == "0.5");
    CHECK(svg_number(1.0 / 3) == "0.33");
    CHECK(svg_number(-0.001) == "0");
    CHECK(svg_number(1000000) == "1000000");
    CHECK(svg_number(123456.789) == "123456.79");
  }

  TEST_CASE("what is no coordinate makes no picture") {
    for (const double none : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e10})
      CHECK_THROWS_WITH_AS(svg_number(none), doctest::Contains("a picture has a coordinate of"), Error);
  }

  TEST_CASE("text is escaped") {
    CHECK(xml_escaped("a<b> & \"c\"\n\x01") == "a&lt;b&gt; &amp; &quot;c&quot;\n ");
  }

  TEST_CASE("a character takes 0.62 of the font's height, whatever its bytes are") {
    CHECK(text_width("abcd", 10) == doctest::Approx(24.8));
    CHECK(text_width("é", 10) == doctest::Approx(6.2));
  }

  TEST_CASE("colours are mixed with white") {
    CHECK(svg_color(0x56B4E9) == "#56b4e9");
    CHECK(svg_color(0x00000A) == "#00000a");
    CHECK(lighter(0x000000, 0.6) == 0x999999);  // 0.6 * 255 = 153
    CHECK(lighter(0xFF8000, 0) == 0xFF8000);
    CHECK(lighter(0x123456, 1) == 0xFFFFFF);
  }

  TEST_CASE("a document, byte for byte") {
    SvgWriter svg(10, 20, ".a{fill:red}\n");
    svg.rect(1, 2, 3.5, 4, "a", "x < y");
    svg.line(0, 0, 1, 1, "b");
    svg.text(5, 6, "t", "R&D", TextAnchor::end);
    svg.path("M0 0Z", "c");
    CHECK(
        std::move(svg).finish() ==
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="10" height="20" viewBox="0 0 10 20" font-family="sans-serif">
<style>
.a{fill:red}
</style>
<rect x="1" y="2" width="3.5" height="4" class="a"><title>x &lt; y</title></rect>
<line x1="0" y1="0" x2="1" y2="1" class="b"/>
<text x="5" y="6" text-anchor="end" class="t">R&amp;D</text>
<path d="M0 0Z" class="c"/>
</svg>
)");
  }
}

}  // namespace
}  // namespace pp
