#include "librun/wiring/channels.h"

#include "libprofile/core/error.h"
#include "tests/librun/models.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace channels_test {

using namespace pp;
using namespace pp::run;

namespace {

struct Parts {
  explicit Parts(const plan::Plan& the_plan)
      : plan(the_plan),
        model(resolve(plan.model)),
        wiring(wire(make_segments(plan, model))),
        training(training_streams(plan)),
        evaluation(forward_streams(plan)) {}
  Channels channels(const ChannelOptions& options = {}) const {
    return Channels(plan, model, wiring, training, evaluation, options);
  }
  plan::Plan plan;
  ResolvedModel model;
  std::vector<StageWiring> wiring;
  std::vector<plan::Stream> training, evaluation;
};

std::vector<const Channel*> of(const Channels& channels, Direction direction) {
  std::vector<const Channel*> found;
  for (const Channel& channel : channels.list()) {
    if (channel.direction == direction) found.push_back(&channel);
  }
  return found;
}

std::string error_of(const Parts& parts) {
  try {
    parts.channels();
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

// Stages 0 | 1 of a worker each, gpipe with two micro-batches.
Parts two_stages() {
  return Parts(make_plan({.model = test::mlp(1), .cuts = {1}, .schedule = "gpipe", .micro_batches = 2}));
}

}  // namespace

TEST_SUITE("librun/wiring/channels") {
  TEST_CASE("an edge has a channel for each direction, which says what its messages are") {
    const Channels channels = two_stages().channels({.step_micro_batches = 2, .evaluation_micro_batches = 5});
    REQUIRE(channels.list().size() == 3);
    const Channel& activation = *of(channels, Direction::activation).front();
    CHECK(activation.from == WorkerId{0});
    CHECK(activation.to == WorkerId{1});
    CHECK(activation.layer == 0);
    CHECK(activation.shape == Shape{6});
    CHECK(activation.dtype == DType::float32);
    CHECK(activation.per_step == 2);
    CHECK(activation.in_order);
    CHECK(activation.window == 5);  // twice the two in flight, and one
    const Channel& gradient = *of(channels, Direction::gradient).front();
    CHECK(gradient.from == WorkerId{1});
    CHECK(gradient.to == WorkerId{0});
    CHECK(of(channels, Direction::evaluation).front()->per_step == 5);
  }

  TEST_CASE("types are the training's, whole numbers keep theirs, and autocast leaves floating ones open") {
    PlanSpec spec{.model = test::mlp(1), .cuts = {1}, .dtype = DType::float64};
    const Parts parts(make_plan(spec));
    CHECK(parts.channels().list().front().dtype == DType::float64);
    CHECK(parts.channels({.autocast = true}).list().front().dtype == std::nullopt);
  }

  TEST_CASE("replicas have channels only with the workers that they share micro-batches with") {
    // 2 and 2 replicas, round robin: 0 with 2 and 1 with 3; 2 and 1: both with the one.
    PlanSpec spec{.model = test::mlp(2), .cuts = {2}, .replicas = {2, 2}};
    const auto pairs = [](const PlanSpec& of_spec) {
      std::vector<std::pair<int, int>> found;
      const Channels channels = Parts(make_plan(of_spec)).channels();
      for (const Channel* channel : of(channels, Direction::activation))
        found.emplace_back(number(channel->from), number(channel->to));
      return found;
    };
    CHECK(pairs(spec) == std::vector<std::pair<int, int>>{{0, 2}, {1, 3}});
    spec.replicas = {2, 1};
    CHECK(pairs(spec) == std::vector<std::pair<int, int>>{{0, 2}, {1, 2}});
  }

  TEST_CASE("a tensor that two stages read has a channel to each") {
    const Parts parts(make_plan({.model = test::skip_mlp(), .cuts = {2, 4}}));
    const Channels channels = parts.channels();
    int of_tanh = 0;
    for (const Channel* channel : of(channels, Direction::activation)) of_tanh += channel->layer == 1 ? 1 : 0;
    CHECK(of_tanh == 2);
    CHECK(channels.ports(StageId{0}).outputs.front().peer == StageId{2});  // descending
    CHECK(channels.ports(StageId{0}).outputs.back().peer == StageId{1});
  }

  TEST_CASE("a message that is received and never sent, or sent and never received, is found before work") {
    Parts parts = two_stages();
    parts.training[0] = plan::steps_of(plan::parse_program("F0.0 F0.1 B0.0 U0"), 2);
    CHECK(
        error_of(parts) ==
        "the gradient of layer 0 for micro-batch 0 of step 2 from worker 1 is sent to worker 0, which does not "
        "receive it");
    parts = two_stages();
    parts.training[1] = plan::steps_of(plan::parse_program("F1.0 B1.0 F1.1 U1"), 2);
    CHECK(
        error_of(parts) ==
        "worker 0 waits for the gradient of layer 0 for micro-batch 0 of step 2 from worker 1, which does not "
        "send it");
  }

  TEST_CASE("every schedule receives in the order in which it sends") {
    const auto check = [](const PlanSpec& spec) {
      CAPTURE(spec.schedule);
      const Channels channels = Parts(make_plan(spec)).channels();
      for (const Channel& channel : channels.list()) CHECK(channel.in_order);
    };
    for (const char* schedule : {"gpipe", "gpipe-reverse", "1f1b", "dapple-pb", "interleaved", "looped-bfs",
                                 "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "chimera"})
      check({.model = test::mlp(3),
             .cuts = {1, 3, 5},
             .schedule = schedule,
             .mini_batch = 8,
             .micro_batches = 8});
    for (const char* schedule : {"pipedream", "spectrain"})
      check({.model = test::mlp(3), .cuts = {1, 3, 5}, .schedule = schedule, .micro_batches = 1});
    for (const char* schedule : {"1f1b", "hybrid"})
      check({.model = test::mlp(3), .cuts = {3}, .replicas = {2, 2}, .schedule = schedule});
    check({.model = test::mlp(3),
           .cuts = {1, 3},
           .replicas = {3, 2, 1},
           .schedule = "pipedream",
           .micro_batches = 1});
  }

  // Two tensors go from the first stage to the second one: with each micro-batch one behind the other.
  TEST_CASE("channels with one order at both ends share a lane, unless a first message tells their type") {
    const Parts parts(make_plan({.model = test::skip_mlp(), .cuts = {3}, .schedule = "1f1b"}));
    for (const bool autocast : {false, true}) {
      const Channels channels = parts.channels({.autocast = autocast});
      for (const Direction direction : {Direction::activation, Direction::gradient, Direction::evaluation}) {
        const std::vector<const Channel*> found = of(channels, direction);
        REQUIRE(found.size() == 2);
        CHECK(found[0]->lane == 0);
        CHECK(found[1]->lane == (autocast ? 1 : 0));
      }
    }
  }

  // Stages 0 and 2 on worker 0, 1 and 3 on worker 1. Sent from 0 to 1: a0.0 a0.1 a2.0 a2.1 g2.0 g2.1; received:
  // a0.0 a2.0 a0.1 a2.1 g2.0 g2.1. So a2 overtakes a0, and both are in front of the gradients.
  TEST_CASE("channels whose messages overtake each other's have lanes of their own") {
    Parts parts(
        make_plan({.model = test::mlp(3), .cuts = {1, 3, 5}, .schedule = "interleaved", .micro_batches = 2}));
    const auto program = [](const char* text) { return plan::steps_of(plan::parse_program(text), 2); };
    parts.training[0] = program("F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1 U0 U2");
    parts.training[1] = program("F1.0 F3.0 B3.0 F1.1 F3.1 B3.1 B1.0 B1.1 U1 U3");
    std::vector<std::pair<int, int>> lanes;  // by the stage that reads
    const Channels channels = parts.channels();
    for (const Channel& channel : channels.list()) {
      if (channel.direction != Direction::evaluation && channel.from == WorkerId{0})
        lanes.emplace_back(number(channel.consumer), channel.lane);
    }
    CHECK(lanes == std::vector<std::pair<int, int>>{{1, 0}, {2, 0}, {3, 1}});
  }

  TEST_CASE("where messages are received in another order, the window holds those that are overtaken") {
    // The gradient of 0 is received first and sent after those of 7 to 1: eight at once, at least. Twice the
    // eight in flight is more.
    Parts parts(make_plan({.model = test::mlp(1), .cuts = {1}, .schedule = "gpipe", .micro_batches = 8}));
    const auto order = [](const char* backwards) {
      return plan::steps_of(
          plan::parse_program(std::string("F1.0 F1.1 F1.2 F1.3 F1.4 F1.5 F1.6 F1.7 ") + backwards), 8);
    };
    parts.training[1] = order("B1.7 B1.6 B1.5 B1.4 B1.3 B1.2 B1.1 B1.0 U1");
    const Channels channels = parts.channels();
    CHECK_FALSE(of(channels, Direction::gradient).front()->in_order);
    CHECK(of(channels, Direction::activation).front()->in_order);
    CHECK(of(channels, Direction::gradient).front()->window == 17);
    // A worker that holds one at a time, and reads them the other way round.
    parts.training[0] = plan::steps_of(
        plan::parse_program(
            "F0.7 B0.7 F0.6 B0.6 F0.5 B0.5 F0.4 B0.4 F0.3 B0.3 F0.2 B0.2 F0.1 B0.1 F0.0 B0.0 U0"),
        8);
    parts.training[1] = plan::steps_of(
        plan::parse_program(
            "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 U1"),
        8);
    // Activation 0 is received first and sent after seven others.
    const Channels overtaken = parts.channels();
    CHECK(of(overtaken, Direction::activation).front()->window == 8);
  }
}

}  // namespace channels_test
