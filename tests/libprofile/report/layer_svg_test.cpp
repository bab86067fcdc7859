#include "libprofile/report/layer_svg.h"

#include "tests/libprofile/report/profiles.h"
#include "tests/support/xml.h"

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

using test::make_profile;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("libprofile/report/layer_svg") {
  // Names of 5 letters take 5 * 0.62 * 11 = 34.1 pixels, so the panels begin at 16 + 34.1 + 8 = 58.1 and have
  // (900 - 16 - 58.1)/2 = 412.95 pixels each, of which the longest bar has 412.95 - 72 = 340.95.
  TEST_CASE("bars are as long as their share of the longest, part behind part") {
    // big00: 4 ms forward, 6 ms backward of the longest 10 ms; small: 5 ms, half of it.
    const Profile profile = make_profile({{"big00", 4, 6, 300, 100}, {"small", 1, 4, 0, 200}}, {1});
    const std::string svg = layer_svg(profile, {});
    CHECK(has(svg, R"(<rect x="58.1" y="96" width="136.38" height="12" class="forward">)"));
    CHECK(has(svg, R"(<rect x="194.48" y="96" width="204.57" height="12" class="backward">)"));
    CHECK(has(svg, R"(<rect x="58.1" y="114" width="34.1" height="12" class="forward">)"));
    // 300 + 100 bytes are the longest: weights take 3/4 of 340.95, from 58.1 + 412.95 on; small's 200 bytes
    // half.
    CHECK(has(svg, R"(<rect x="471.05" y="96" width="255.71" height="12" class="weights">)"));
    CHECK(has(svg, R"(<rect x="471.05" y="114" width="170.48" height="12" class="saved">)"));
    CHECK(has(svg, "small\nforward 1 ms (900 us to 1.1 ms)\nbackward 4 ms (3.6 ms to 4.4 ms)</title>"));
    CHECK(has(svg, ">all layers: 15 ms</text>"));
    CHECK(has(svg, ">all layers: 600 B</text>"));
    CHECK(has(svg, ">micro-batches of 1, float32, a processor</text>"));
  }

  TEST_CASE("order and limit choose the rows, what is left out is counted") {
    const Profile profile = make_profile({{"a", 1, 1}, {"b", 3, 3}, {"c", 2, 2}}, {1});
    const std::string svg = layer_svg(profile, {.order = LayerOrder::time, .micro_batch_size = 1, .limit = 2});
    CHECK(svg.find(">b</text>") < svg.find(">c</text>"));
    CHECK_FALSE(has(svg, ">a</text>"));
    CHECK(has(svg, "; 1 more layer</text>"));
    CHECK(has(svg, ">all layers: 12 ms</text>"));
  }

  TEST_CASE("a layer that was out of memory says so, long names are shortened") {
    Profile profile = make_profile({{std::string(60, 'n'), 1, 1}, {"b", 1, 1}}, {1});
    profile.layers[1].points[0] = test::out_of_memory(1);
    const std::string svg = layer_svg(profile, {});
    CHECK(has(svg, ">out of memory</text>"));
    // 220 pixels hold 32 letters: 29 and three dots.
    CHECK(has(svg, ">" + std::string(29, 'n') + "...</text>"));
  }

  TEST_CASE("more than 60 layers are folded into blocks with their sums, unless a limit asks for rows") {
    // 20 blocks of 4 layers: a block is 4 layers of 1 + 2 ms.
    std::vector<test::LayerSpec> layers;
    for (int block = 0; block < 20; ++block) {
      for (const char* part : {"a", "b", "c", "d"})
        layers.push_back({"block" + std::to_string(block) + "." + part, 1, 2, 100, 50});
    }
    const Profile profile = make_profile(layers, {1});
    const std::string svg = layer_svg(profile, {});
    CHECK(has(svg, ">block3 (4 layers)</text>"));
    CHECK(has(svg, "block3 (4 layers)\nforward 4 ms\nbackward 8 ms\nlongest: block3.a</title>"));
    CHECK(has(svg, "; 80 layers in 20 rows</text>"));
    CHECK(has(svg, ">12 ms</text>"));
    CHECK_FALSE(has(svg, ">block3.a</text>"));
    CHECK(has(layer_svg(profile, {.limit = 80}), ">block3.a</text>"));
  }

  TEST_CASE("every picture is XML") {
    const std::vector<Profile> profiles{make_profile({{"a", 0, 0}}, {1}),
                                        make_profile({{"a<b&c", 1, 1, 5, 5}}, {1, 2})};
    for (const Profile& profile : profiles) {
      const std::string svg = layer_svg(profile, {.width = 10});
      CHECK(svg.starts_with("<svg "));
      CHECK(pp::test::xml_error(svg).empty());
    }
  }
}

}  // namespace pp::profile
