#include "libplan/cost/layer_curve.h"

#include "libprofile/core/error.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/layer_curve");

namespace pp::plan::layer_curve_test {
namespace {

LayerPoint point(std::int64_t size, double forward, std::int64_t output) {
  LayerPoint result;
  result.micro_batch_size = size;
  result.forward.median = Seconds(forward);
  result.backward.median = Seconds(2 * forward);
  result.output = Bytes(output);
  return result;
}

LayerProfile layer(std::vector<LayerPoint> points) {
  LayerProfile profile;
  profile.name = "conv1";
  profile.points = std::move(points);
  return profile;
}

std::string message(const LayerProfile& profile, std::int64_t size) {
  return pp::test::error_of([&] { price_layer(profile, size, {}); }, ErrorKind::usage);
}

}  // namespace

TEST_CASE("between two points the value lies on their line, not on a ray through 0") {
  const LayerProfile profile = layer({point(1, 1.0, 10), point(4, 2.5, 40), point(8, 3.5, 80)});
  CHECK(price_layer(profile, 4, {}).forward == 2.5);
  CHECK(price_layer(profile, 2, {}).forward == 1.5);   // 1 + 1.5/3
  CHECK(price_layer(profile, 2, {}).backward == 3.0);  // twice that
  CHECK(price_layer(profile, 6, {}).forward == 3.0);   // 2.5 + 1/2
  CHECK(price_layer(profile, 6, {}).output == 60);
}

TEST_CASE("outside the points: refused, or the nearest segment continued") {
  const LayerProfile profile = layer({point(2, 1.0, 10), point(4, 2.5, 40)});
  CHECK(message(profile, 8) ==
        "layer conv1: micro-batch size 8 is outside the profiled 2..4; profile that size, choose "
        "another or allow --extrapolate");
  CHECK(message(profile, 1) ==
        "layer conv1: micro-batch size 1 is outside the profiled 2..4; profile that size, choose "
        "another or allow --extrapolate");
  CHECK(price_layer(profile, 8, {.extrapolate = true}).forward == 5.5);  // 1 + 3*1.5
  CHECK(price_layer(profile, 1, {.extrapolate = true}).forward == 0.25);
  CHECK(price_layer(profile, 1, {.extrapolate = true}).output == 0);  // -5, clamped
}

TEST_CASE("a single point prices its own size only, or scales when allowed") {
  const LayerProfile profile = layer({point(4, 2.0, 40)});
  CHECK(price_layer(profile, 4, {}).forward == 2.0);
  CHECK(message(profile, 8) ==
        "layer conv1: micro-batch size 8 differs from the only profiled size 4; profile that size, "
        "choose another or allow --linear-batch");
  CHECK(price_layer(profile, 8, {.linear_batch = true}).forward == 4.0);
  CHECK(price_layer(profile, 2, {.linear_batch = true}).output == 20);
}

TEST_CASE("points that ran out of memory do not count") {
  LayerPoint failed = point(8, 0, 0);
  failed.out_of_memory = true;
  const LayerProfile profile = layer({point(2, 1.0, 10), point(4, 2.0, 40), failed});
  CHECK(message(profile, 8) ==
        "layer conv1: micro-batch size 8 is outside the profiled 2..4; profile that size, choose "
        "another or allow --extrapolate");
}

TEST_CASE("a split of backward that was not measured is halves, or all input gradient without parameters") {
  LayerPoint split = point(4, 2.0, 40);
  split.input_gradient = TimeStat{.median = Seconds(1)};
  split.weight_gradient = TimeStat{.median = Seconds(3)};
  CHECK(price_layer(layer({split}), 4, {}).weight_gradient == 3);
  CHECK(price_layer(layer({split}), 2, {.linear_batch = true}).input_gradient == 0.5);
  // Forward 2, backward 4.
  LayerProfile unsplit = layer({point(4, 2.0, 40)});
  CHECK(price_layer(unsplit, 4, {}).input_gradient == 4);
  CHECK(price_layer(unsplit, 4, {}).weight_gradient == 0);
  unsplit.parameters = Bytes(8);
  CHECK(price_layer(unsplit, 4, {}).input_gradient == 2);
  CHECK(price_layer(unsplit, 4, {}).weight_gradient == 2);
  CHECK(price_layer(unsplit, 2, {.linear_batch = true}).weight_gradient == 1);
}

TEST_CASE("what a device takes that holds the whole model beyond one that holds a part is kept apart") {
  LayerPoint small = point(2, 1.0, 10), large = point(4, 2.0, 20);  // backward 2 and 4
  small.in_part = without_spread(Seconds(0.5), Seconds(1.5), Seconds(1), Seconds(0));
  large.in_part =
      without_spread(Seconds(1.5), Seconds(4.5), Seconds(4), Seconds(0));  // the backward takes longer
  const LayerPrice at_two = price_layer(layer({small, large}), 2, {});
  CHECK(at_two.forward == 0.5);
  CHECK(at_two.crowded == PassTimes{0.5, 0.5, 1, 0});
  const LayerPrice at_three = price_layer(layer({small, large}), 3, {});
  CHECK(at_three.forward == 1);  // of 1.5
  CHECK(at_three.crowded.forward == 0.5);
  CHECK(at_three.backward == 3);  // of 3
  const LayerPrice at_four = price_layer(layer({small, large}), 4, {});
  CHECK(at_four.backward == 4.5);
  CHECK(at_four.crowded.backward == -0.5);
  CHECK(never_falling(at_four).backward == 4);
  CHECK(never_falling(at_four).crowded.backward == 0);
  CHECK(never_falling(at_four).crowded.forward == at_four.crowded.forward);
  small.in_part.reset();
  CHECK(price_layer(layer({small, large}), 3, {}).crowded == PassTimes{});  // known at one end only
}

TEST_CASE("alone: what a full device costs, and what full neighbours cost beside that") {
  LayerPoint only = point(4, 2.0, 40);  // beside full neighbours 2 and 4, all of it input gradient
  only.in_part = without_spread(Seconds(1), Seconds(3), Seconds(3), Seconds(0));
  only.alone = without_spread(Seconds(1.75), Seconds(2.5), Seconds(2.5), Seconds(0));
  const LayerPrice price = price_layer(layer({only}), 4, {});
  CHECK(price.forward == 1);
  CHECK(price.crowded == PassTimes{0.75, -0.5, -0.5, 0});
  CHECK(price.beside == PassTimes{0.25, 1.5, 1.5, 0});
  CHECK(never_falling(price).backward == 2.5);
  CHECK(never_falling(price).crowded.backward == 0);
  CHECK(never_falling(price).beside == price.beside);
  CHECK(price_layer(layer({only}), 2, {.linear_batch = true}).beside.forward == 0.125);
  only.alone->forward.median = Seconds(2.5);  // noise: nobody is slower alone, so it is 2
  const LayerPrice noisy = price_layer(layer({only}), 4, {});
  CHECK(noisy.beside.forward == 0);
  CHECK(noisy.crowded.forward == 1);
  CHECK(never_falling(noisy).forward == 1);
}

TEST_CASE("crowding by neighbours: nothing up to one model on a node, all of it with one per device") {
  CHECK(crowding_beside(1, 4) == 0);
  CHECK(crowding_beside(2.5, 4) == 0.5);  // (2.5 - 1)/3
  CHECK(crowding_beside(4, 4) == 1);
  CHECK(crowding_beside(8, 4) == 1);  // on more devices than were profiled
  CHECK(crowding_beside(1, 1) == 0);
}

TEST_CASE("the first micro-batch of an update takes what it takes beyond the others, or less") {
  LayerPoint only = point(4, 2.0, 40);  // backward 4: all input gradient
  only.first = without_spread(Seconds(3), Seconds(3), Seconds(4), Seconds(0.5));
  CHECK(price_layer(layer({only}), 4, {}).first == PassTimes{1, -1, 0, 0.5});
  CHECK(price_layer(layer({only}), 2, {.linear_batch = true}).first.forward == 0.5);
}

TEST_CASE("crowding: nothing up to an equal share, all of it with the whole model, a line between") {
  CHECK(crowding(10, 40, 4) == 0);
  CHECK(crowding(5, 40, 4) == 0);
  CHECK(crowding(25, 40, 4) == 0.5);  // (2.5 - 1)/3
  CHECK(crowding(40, 40, 4) == 1);
  CHECK(crowding(40, 40, 1) == 1);
  CHECK(crowding(0, 0, 2) == 1);  // without parameters nothing tells the devices apart
}

}  // namespace pp::plan::layer_curve_test

TEST_SUITE_END();
