#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/device/process.h"
#include "libprofile/measure/profile_run.h"
#include "tests/libprofile/measure/fakes.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace pp::profile::profiler_test {
namespace {

using model::test::GraphBuilder;
using model::test::whole;

GraphBuilder chain() {
  return GraphBuilder()
      .input("x", {4})
      .target("label", {})
      .layer("first", "linear", {"x"}, {{"out_features", whole(6)}})
      .layer("relu", "relu", {"first"})
      .layer("second", "linear", {"relu"}, {{"out_features", whole(3)}})
      .output("second");
}
ModelGraph chain_graph() { return chain().loss("cross_entropy", "second", "label").build().graph; }

ProfileOptions brief(std::vector<std::int64_t> sizes) {
  return {.micro_batch_sizes = std::move(sizes), .precision = 0.5, .budget_per_size = Seconds(0.02)};
}

Environment machine(const Clock& clock) {
  return {.clock = clock,
          .machine = {.cores = {0}, .why_no_cuda = "this build has no CUDA"},
          .memory = Bytes(std::int64_t{1} << 30),
          .load = Load{0, 1},
          .context = {{"host", "here"}}};
}

Profile measure(const ModelGraph& graph, const ProfileOptions& options) {
  prepare_process();
  test::RecordingObserver observer;
  return profile_model(graph, options, observer);
}

}  // namespace

TEST_SUITE("libprofile/measure/profiler") {
  TEST_CASE("a profile has every layer of the model and the loss at every size") {
    const Profile profile = measure(chain_graph(), brief({1, 3}));
    CHECK(profile.mode == ProfileMode::in_place);
    CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{1, 3});
    REQUIRE(profile.layers.size() == 3);
    REQUIRE(profile.loss.has_value());
    CHECK(profile.loss->name == "loss");
    const char* names[] = {"first", "relu", "second"};
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(profile.layers[i].name == names[i]);
      REQUIRE(profile.layers[i].points.size() == 2);
      CHECK(profile.layers[i].points[1].micro_batch_size == 3);
    }
    CHECK(profile.whole_model.size() == 2);
    CHECK(profile.estimated.empty());
  }

  TEST_CASE("parameters, FLOPs and output bytes are those of the model") {
    const Profile profile = measure(chain_graph(), brief({2}));
    CHECK(profile.layers[0].parameter_count == 4 * 6 + 6);
    CHECK(profile.layers[0].parameters == Bytes(30 * 4));
    CHECK(profile.layers[1].parameter_count == 0);
    CHECK(profile.layers[2].parameter_count == 6 * 3 + 3);
    CHECK(profile.layers[0].forward_flops_per_sample == Flops(2 * 4 * 6 + 6));
    CHECK(profile.loss->forward_flops_per_sample == Flops(5 * 3));  // a softmax over 3 classes
    CHECK(profile.layers[2].points[0].output == Bytes(2 * 3 * 4));
  }

  TEST_CASE("each operation that has several kernels is timed by both, at each size") {
    using enum KernelTask;
    using enum ProductLayout;
    const auto f32 = DType::float32;
    // Of n samples: x w^T with a bias, 4 -> 6 and 6 -> 3; the gradient of relu's output, n x 3 by 3 x 6; those
    // of the weights, 6 x n by n x 4 and 3 x n by n x 6, the first of a step and a later one. Nobody wants x's.
    std::vector<KernelKey> expected;
    for (const std::int64_t n : {2, 5}) {
      for (const auto& [in, out] : {std::pair{4, 6}, std::pair{6, 3}}) {
        expected.push_back({product_with_bias, f32, nt, {n, in, out}});
        for (const KernelTask task : {product_into, product_added})
          expected.push_back({task, f32, tn, {out, n, in}});
      }
      expected.push_back({product, f32, nn, {n, 3, 6}});
    }
    std::ranges::sort(expected);
    ProfileOptions options = brief({2, 5});
    const auto keys_of = [](const Profile& profile) {
      std::vector<KernelKey> keys;
      for (const KernelChoice& choice : profile.kernels) keys.push_back(choice.key);
      return keys;
    };
    const Profile measured = measure(chain_graph(), options);
    CHECK((keys_of(measured) == expected));
    for (const KernelChoice& choice : measured.kernels) {
      REQUIRE(choice.measured);
      CHECK((choice.kernel == Kernel::onednn) == ((*choice.measured)[1] <= 0.97 * (*choice.measured)[0]));
    }
    options.mode = ProfileMode::isolated;
    CHECK(std::ranges::includes(keys_of(measure(chain_graph(), options)), expected));  // and x's gradient
    options.mode = ProfileMode::in_place;
    options.kernels = KernelPolicy::onednn;
    const Profile forced = measure(chain_graph(), options);
    CHECK((keys_of(forced) == expected));
    for (const KernelChoice& choice : forced.kernels) {
      CHECK(choice.kernel == Kernel::onednn);
      CHECK(!choice.measured);
    }
    options.kernels = KernelPolicy::mkl;
    CHECK(measure(chain_graph(), options).kernels.empty());
  }

  TEST_CASE("times are positive where there is work and 0 where there is none") {
    const Profile profile = measure(chain_graph(), brief({2}));
    for (const LayerProfile& layer : profile.layers) {
      const LayerPoint& point = layer.points[0];
      CAPTURE(layer.name);
      CHECK(point.forward.median.count() > 0);
      CHECK(point.backward.median.count() > 0);
      CHECK(point.forward.low <= point.forward.median);
      CHECK(point.forward.median <= point.forward.high);
      CHECK(point.forward.samples >= 10);  // full and split passes, five of each at least
      CHECK((point.input_gradient->median.count() > 0) == (layer.name != "first"));
      CHECK((point.weight_gradient->median.count() > 0) == (layer.name != "relu"));
    }
    CHECK(profile.whole_model[0].forward.median.count() > 0);
    CHECK(profile.whole_model[0].backward.median.count() > 0);
  }

  TEST_CASE("both optimizers are timed over all parameters") {
    const Profile profile = measure(chain_graph(), brief({2}));
    REQUIRE(profile.optimizers.size() == 2);
    CHECK(profile.optimizers[0].name == "sgd");
    CHECK(profile.optimizers[0].state_bytes_per_parameter_byte == 1.0);  // with momentum
    CHECK(profile.optimizers[1].name == "adamw");
    CHECK(profile.optimizers[1].state_bytes_per_parameter_byte == 2.0);
    for (const OptimizerProfile& optimizer : profile.optimizers) {
      CHECK(optimizer.update.median.count() > 0);
      REQUIRE(optimizer.new_version);
      CHECK(optimizer.new_version->parameters == optimizer.parameters);  // one device has no parts
      CHECK(optimizer.new_version->update.median.count() > 0);
      CHECK(optimizer.new_version->update.samples >= 5);
      CHECK(optimizer.parameters == Bytes((30 + 21) * 4));
      // Of three layers: all, the first and the other two, then each alone; the relu has nothing to update.
      std::vector<Bytes> parts;
      for (const UpdatePoint& part : optimizer.parts) parts.push_back(part.parameters);
      CHECK((parts == std::vector{Bytes(204), Bytes(120), Bytes(84), Bytes(120), Bytes(84)}));
    }
  }

  TEST_CASE("the document reads back as the same value") {
    const Profile profile = measure(chain_graph(), brief({1, 2}));
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  }

  TEST_CASE("layers that share weights count them once") {
    const ModelGraph graph = GraphBuilder()
                                 .input("tokens", {3}, DType::int64)
                                 .target("next", {3})
                                 .layer("embedding", "embedding", {"tokens"},
                                        {{"num_embeddings", whole(7)}, {"embedding_dim", whole(4)}})
                                 .layer("logits", "linear", {"embedding"},
                                        {{"out_features", whole(7)}, {"bias", false}}, "embedding")
                                 .output("logits")
                                 .loss("cross_entropy", "logits", "next")
                                 .build()
                                 .graph;
    const Profile profile = measure(graph, brief({2}));
    CHECK(profile.layers[0].parameter_count == 28);
    CHECK(profile.layers[1].parameter_count == 0);
    CHECK(profile.optimizers[0].parameters == Bytes(28 * 4));
    CHECK(profile.layers[0].points[0].saved == Bytes(2 * 3 * 8));  // the indices, int64
  }

  TEST_CASE("a model without parameters has no optimizers, without a loss no loss") {
    const ModelGraph graph = GraphBuilder().input("x", {4}).layer("y", "relu", {"x"}).output("y").build().graph;
    const Profile profile = measure(graph, brief({2}));
    CHECK(profile.optimizers.empty());
    CHECK_FALSE(profile.loss.has_value());
    CHECK(profile.layers[0].points[0].forward.median.count() > 0);
    CHECK(profile.layers[0].points[0].backward.median.count() == 0.0);
  }

  TEST_CASE("two devices work at once, each on half of the memory, with two micro-batches in flight") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    ProfileOptions options = brief({2});
    options.devices = {.count = 2};
    const Profile profile = profile_model(chain_graph(), options, observer, machine(clock));
    CHECK(profile.device.devices_busy == 2);
    CHECK(profile.device.cores_per_device == 1);
    CHECK(profile.device.memory == Bytes(std::int64_t{1} << 29));
    CHECK(profile.context.at("devices") == "cpu:2x1");
    CHECK(profile.context.at("micro_batches_in_flight") == "2");
    const OptimizerProfile& sgd = profile.optimizers[0];
    REQUIRE(sgd.new_version);
    CHECK(sgd.new_version->parameters == Bytes(30 * 4));  // fc1 alone, the first of two parts
    CHECK(sgd.update.samples >= 5);  // of both devices, beside the whole model of one alone
    CHECK(sgd.parts.front().parameters == sgd.parameters);
    CHECK_FALSE(sgd.parts.front().update == sgd.update);
    CHECK(profile.context.at("host") == "here");
    REQUIRE_FALSE(observer.warnings.empty());
    CHECK(
        observer.warnings[0] ==
        "cpu:2x1 needs 2 cores, this process may use 1 core: devices share cores and their times hold for this "
        "sharing "
        "only; ask for fewer devices or cores");
  }

  TEST_CASE("with two devices each layer is timed in a part as well, alone, and as a step's first") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    ProfileOptions options = brief({2, 4});
    options.devices = {.count = 2};
    const Profile two = profile_model(chain_graph(), options, observer, machine(clock));
    for (const LayerPoint& point : two.layers[0].points) {
      REQUIRE(point.in_part.has_value());
      CHECK(point.in_part->forward.median.count() > 0);
      CHECK(point.in_part->weight_gradient.median.count() > 0);
      CHECK(point.in_part->input_gradient.median.count() == 0);  // the data wants no gradient
      REQUIRE(point.alone.has_value());
      CHECK(point.alone->forward.median.count() > 0);
      CHECK(point.alone->weight_gradient.median.count() > 0);
      REQUIRE(point.first.has_value());
      CHECK(point.first->backward.median.count() > 0);
    }
    CHECK(two.layers[1].points[0].in_part->weight_gradient.median.count() == 0);  // relu
    REQUIRE(two.loss->points[0].in_part.has_value());
    options.devices = {.count = 1};
    const Profile one = profile_model(chain_graph(), options, observer, machine(clock));
    CHECK_FALSE(one.layers[0].points[0].in_part.has_value());
    CHECK_FALSE(one.layers[0].points[0].alone.has_value());
    CHECK(one.layers[0].points[0].first.has_value());
  }

  TEST_CASE(
      "where memory holds no part beside the model, its times are those of whole models, with a warning") {
    prepare_process();
    const SteadyClock clock;
    ProfileOptions options = brief({2});
    options.devices = {.count = 2};
    // Weights and gradients of 30 + 21 parameters take 408 bytes, a pass on two samples 100 to 200 more.
    Environment tight = machine(clock);
    tight.memory = Bytes(2 * 704);
    test::RecordingObserver observer;
    const Profile profile = profile_model(chain_graph(), options, observer, tight);
    const std::vector<std::string>& warnings = observer.warnings;
    CHECK_FALSE(profile.layers[0].points[0].in_part.has_value());
    CHECK(std::ranges::any_of(warnings, [](const std::string& warning) {
      return warning.find("memory does not hold the model beside a part of it") == 0;
    }));
  }

  TEST_CASE("on a steady clock every layer takes one reading, and the sum is compared with the whole") {
    prepare_process();
    const test::CountingClock clock;
    test::RecordingObserver observer;
    const Profile profile = profile_model(chain_graph(), brief({2}), observer, machine(clock));
    const LayerPoint& relu = profile.layers[1].points[0];
    CHECK(relu.forward.median.count() == doctest::Approx(1e-3));
    CHECK(relu.backward.median.count() == doctest::Approx(1e-3));
    CHECK(relu.input_gradient->median.count() == doctest::Approx(1e-3));
    CHECK(profile.whole_model[0].forward.median.count() == doctest::Approx(1e-3));
    // Layers and loss: 4 forward and 4 backward readings; the whole model: one of each. 8 / 2 = 400 %.
    CHECK(
        observer.warnings ==
        std::vector<std::string>{"the layers at micro-batch size 2 add up to 400 % of the whole model's time: "
                                 "predictions will be off by as much; end other programs, or raise --budget"});
  }

  TEST_CASE("unsteady times are warned of") {
    prepare_process();
    const test::UnsteadyClock clock;
    test::RecordingObserver observer;
    profile_model(chain_graph(), brief({2}), observer, machine(clock));
    // A step in three is 10 ms, the others 1 ms: 84th percentile 10, median and 16th percentile 1, or the
    // reverse.
    const auto spreads = [](const std::string& text) {
      return text.starts_with("times at micro-batch size 2 spread by up to ");
    };
    CHECK(std::any_of(observer.warnings.begin(), observer.warnings.end(), spreads));
  }

  TEST_CASE("progress never goes back within a phase and ends at nothing remaining but the optimizers") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    profile_model(chain_graph(), brief({1, 2}), observer, machine(clock));
    std::vector<std::string> phases;
    for (const auto& step : observer.steps) {
      if (phases.empty() || phases.back() != step.phase) phases.push_back(step.phase);
      CHECK(step.done >= 0.0);
      CHECK(step.done <= 1.0);
      CHECK(step.remaining.count() >= 0.0);
    }
    CHECK(phases == std::vector<std::string>{"counting bytes", "timing layers", "timing optimizers"});
  }

  TEST_CASE("once timing has begun, the end that is foretold is the end that comes") {
    // Time counts readings of the clock, so nothing of it is chance; the precision is never reached.
    struct Foretelling final : Observer {
      explicit Foretelling(const Clock& the_clock) : clock(the_clock) {}
      void progress(std::string_view phase, double /*done*/, Seconds remaining) override {
        if (phase != "counting bytes") ends.push_back((clock.now() + remaining).count());
      }
      void warning(std::string_view /*text*/) override {}
      const Clock& clock;
      std::vector<double> ends;
    };
    prepare_process();
    const test::UnsteadyClock clock;
    Foretelling observer(clock);
    ProfileOptions options = brief({1, 2});
    options.precision = 1e-6;
    options.budget_per_size = Seconds(2);
    profile_model(chain_graph(), options, observer, machine(clock));
    const double end = clock.now().count();
    REQUIRE(observer.ends.size() > 10);
    for (std::size_t i = 0; i < observer.ends.size(); ++i) {
      CAPTURE(i);
      CHECK(observer.ends[i] == doctest::Approx(end).epsilon(0.2));
    }
    CHECK(observer.ends.back() == doctest::Approx(end).epsilon(0.05));
  }

  TEST_CASE("a size that does not fit is recorded as out of memory, with all above it") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    Environment environment = machine(clock);
    environment.memory = Bytes(100'000);
    // 10,000 samples of 4 floats are 160,000 bytes.
    const Profile profile = profile_model(chain_graph(), brief({1, 10'000, 20'000}), observer, environment);
    REQUIRE(profile.layers[0].points.size() == 3);
    CHECK_FALSE(profile.layers[0].points[0].out_of_memory);
    CHECK(profile.layers[0].points[1].out_of_memory);
    CHECK(profile.loss->points[2].out_of_memory);
    CHECK(profile.whole_model.size() == 1);
    REQUIRE_FALSE(observer.warnings.empty());
    CHECK(observer.warnings[0] == "micro-batch size 10000 and above do not fit into the device's " +
                                      to_text(Bytes(100'000)) +
                                      ": recorded as out of memory; leave these sizes out");
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  }

  TEST_CASE("automatic sizes double up to the first that does not fit, which stays as a point") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    Environment environment = machine(clock);
    environment.memory = Bytes(8'000);
    ProfileOptions options = brief({});
    options.size_choice = SizeChoice::automatic;
    options.budget_per_size = Seconds(10);  // memory decides
    const Profile profile = profile_model(chain_graph(), options, observer, environment);
    const std::vector<std::int64_t>& sizes = profile.micro_batch_sizes;
    REQUIRE(sizes.size() >= 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(sizes[i] == std::int64_t{1} << i);
    for (const LayerPoint& point : profile.layers[0].points) {
      CHECK(point.out_of_memory == (point.micro_batch_size == sizes.back()));
    }
    CHECK(profile.whole_model.size() == sizes.size() - 1);
    CHECK(std::none_of(observer.warnings.begin(), observer.warnings.end(),
                       [](const std::string& text) { return text.find("do not fit") != std::string::npos; }));
  }

  TEST_CASE("automatic sizes end where a larger one could not be sampled within the budget") {
    prepare_process();
    const test::CountingClock clock;
    test::RecordingObserver observer;
    ProfileOptions options = brief({});
    options.size_choice = SizeChoice::automatic;
    options.budget_per_size = Seconds(1e-6);  // less than any pass takes
    CHECK(profile_model(chain_graph(), options, observer, machine(clock)).micro_batch_sizes ==
          std::vector<std::int64_t>{1});
  }

  TEST_CASE("isolated: every layer alone gives the parameters, outputs and times, but no whole") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    ProfileOptions options = brief({1, 2});
    options.mode = ProfileMode::isolated;
    const Profile profile = profile_model(chain_graph(), options, observer, machine(clock));
    CHECK(profile.mode == ProfileMode::isolated);
    CHECK(profile.whole_model.empty());
    CHECK(profile.estimated == std::vector<std::string>{"saved_bytes"});
    REQUIRE(profile.layers.size() == 3);
    CHECK(profile.layers[1].name == "relu");
    CHECK(profile.layers[2].parameter_count == 6 * 3 + 3);
    CHECK(profile.layers[2].points[1].output == Bytes(2 * 3 * 4));
    // Its input, 2*6 floats: alone it cannot know that relu keeps the same tensor.
    CHECK(profile.layers[2].points[1].saved == Bytes(48));
    CHECK(profile.loss->points[1].forward.median.count() > 0);
    CHECK(profile.optimizers[0].parameters == Bytes((30 + 21) * 4));
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  }

  TEST_CASE("isolated layers need no more memory than the largest of them") {
    prepare_process();
    const SteadyClock clock;
    test::RecordingObserver observer;
    ProfileOptions options = brief({1});
    Environment environment = machine(clock);
    // A layer of 100*100 + 100 floats with gradients and scratch takes 4 * 40,400 bytes; two do not fit.
    environment.memory = Bytes(250'000);
    const ModelGraph wide = GraphBuilder()
                                .input("x", {100})
                                .layer("first", "linear", {"x"}, {{"out_features", whole(100)}})
                                .layer("second", "linear", {"first"}, {{"out_features", whole(100)}})
                                .layer("third", "linear", {"second"}, {{"out_features", whole(100)}})
                                .layer("fourth", "linear", {"third"}, {{"out_features", whole(100)}})
                                .output("fourth")
                                .build()
                                .graph;
    CHECK_THROWS_AS(profile_model(wide, options, observer, environment), Error);
    options.mode = ProfileMode::isolated;
    const Profile profile = profile_model(wide, options, observer, environment);
    CHECK_FALSE(profile.layers[3].points[0].out_of_memory);
  }
}

}  // namespace pp::profile::profiler_test
