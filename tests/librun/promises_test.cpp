// What a training promises of its weights, whatever is combined: a table of features, of which every two stand
// together in at least one training, or in the list of what is refused, with the words of the refusal. A
// training has the bits of the same one in one process without recomputation, divided state, overlap or
// interruption, and those of one device by the book; its values to rounding where sums have another order.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "librun/setup/make_setup.h"
#include "tests/lab/fuzz/random.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/features.h"
#include "tests/librun/promise.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/whole_model.h"
#include "tests/support/places.h"
#include "tests/support/small_families.h"
#include "tests/support/torch_test.h"

namespace promises_test {

using namespace pp;
using fuzz::Random;
using namespace pp::test;

namespace {

/// What keeps such a training from beginning; empty: nothing.
std::string refusal(const Training& t) {
  return pp::test::error_of([&] {
    for (const Part& part : parts_of(t, false)) {
      run::check(part.plan, t.options);
      if (t.ranks == 1 || part.plan.workers.size() == 1) continue;
      run::Placement two{.ranks = 2, .on_host = {true, true}, .beside = {true, true}};
      for (const plan::Worker& worker : part.plan.workers) two.rank_of.push_back(number(worker.id) % 2);
      run::make_setup(part.plan, t.options, two);
    }
  });
}

Run run_in(int ranks, const std::vector<Part>& parts, run::RunOptions options) {
  int most = 1000;
  for (const Part& part : parts) most = std::min(most, static_cast<int>(part.plan.workers.size()));
  ranks = ranks == 0 ? most : std::min(ranks, most);
  const bool whole = parts.size() == 1 && !options.checkpoint_steps;
  if (ranks == 1) return whole ? run_plan(parts.front().plan, options) : run_parts(parts, options);
  if (whole) return run_on(ranks, parts.front().plan, options);
  const TestFolder folder;
  options.checkpoint = folder.path() / "ck";
  Run all;
  std::vector<double> losses;
  std::int64_t skipped = 0;
  for (const Part& part : parts) {
    options.steps = part.end;
    all = run_on(ranks, part.plan, options);
    losses.insert(losses.end(), all.report.step_losses.begin(), all.report.step_losses.end());
    skipped += all.report.skipped_steps;
    options.resume = options.checkpoint;
  }
  all.report.step_losses = losses;
  all.report.skipped_steps = skipped;
  return all;
}

/// Rows in which every pair stands that is not refused: each begins with one that is missing, and every other
/// axis takes the feature with which most are no longer missing, or the plain one. First those with a book.
class Rows {
 public:
  Rows() {
    for (const Pair& pair : all_pairs())
      (refused(pair) ? never_ : has_book(pair) ? missing_ : later_).insert(pair);
  }

  /// Nothing when no pair is missing.
  std::optional<Row> next(std::uint64_t draws) {
    if (missing_.empty()) missing_.swap(later_);
    if (missing_.empty()) return std::nullopt;
    Random random(draws);
    const Pair first = *missing_.begin();
    Row row(axes().size(), 0);
    std::vector<Place> fixed{first.first, first.second};
    std::vector<std::size_t> rest;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (a != first.first.first && a != first.second.first) rest.push_back(a);
    }
    random.shuffle(rest);
    for (const std::size_t axis : rest) fixed.push_back(best(axis, fixed, random));
    for (const auto& [axis, feature] : fixed) row[axis] = feature;
    // Three that cannot be combined, where every two can.
    for (const std::size_t axis : rest) {
      if (refusal(training_of(row, draws)).empty()) break;
      row[axis] = 0;
    }
    REQUIRE(refusal(training_of(row, draws)) == "");
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b)
        for (auto* const pairs : {&missing_, &later_}) pairs->erase({{a, row[a]}, {b, row[b]}});
    }
    return row;
  }

 private:
  static bool has_book(const Pair& pair) {
    const auto of = [](const Place& place) { return axes()[place.first].features[place.second].book; };
    return of(pair.first) && of(pair.second);
  }
  static Pair pair_of(const Place& one, const Place& two) {
    return one < two ? Pair(one, two) : Pair(two, one);
  }

  Place best(std::size_t axis, const std::vector<Place>& fixed, Random& random) const {
    Place best{axis, 0};
    std::int64_t most = 0;
    const std::size_t count = axes()[axis].features.size(), begin = random.below(count);
    for (std::size_t k = 0; k < count; ++k) {
      const Place place{axis, (begin + k) % count};
      const auto in = [&](const std::set<Pair>& pairs) {
        return std::ranges::count_if(fixed,
                                     [&](const Place& other) { return pairs.contains(pair_of(place, other)); });
      };
      if (in(never_) > 0) continue;
      if (const std::int64_t found = in(missing_); found > most) best = place, most = found;
    }
    return best;
  }

  std::set<Pair> missing_, later_, never_;
};

/// What is frozen, or reached by no gradient.
std::vector<std::string> kept_names(const ResolvedModel& model) {
  std::vector<std::string> names;
  for (int l = 0; l < model.layer_count(); ++l) {
    const ResolvedLayer& layer = model.layers[static_cast<std::size_t>(l)];
    for (std::size_t p = 0; p < layer.trained.size(); ++p) {
      if (layer.weights_layer == l && !layer.trained[p]) names.push_back(parameter_name(model, l, p));
    }
  }
  return names;
}

plan::Plan thawed(plan::Plan plan) {
  for (Layer& layer : plan.model.layers) {
    layer.frozen = {};
    for (Layer& node : layer.nodes) node.frozen = {};
  }
  return plan;
}

void check_kept(const plan::Plan& plan, const run::RunOptions& options, const NamedTensors& found) {
  const WholeModel model(plan, options);
  const std::vector<std::string> kept = kept_names(model.resolved());
  const NamedTensors initial = model.named(model.initial_weights(), model.initial_buffers());
  REQUIRE(found.size() == initial.size());
  bool moved = false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(found[i].first);
    const bool same = found[i].second.equal(initial[i].second);
    if (std::ranges::count(kept, found[i].first) > 0) CHECK(same);
    moved |= !same;
  }
  CHECK(moved);
}

enum class Book { bits, rounding, stream, none };

/// Against one device by the book. Without one: sums of half numbers in another order, and what divides by
/// them; clocked and served weights, whose recursions stand in tests of their own.
Book check_book(const Training& t, const std::vector<Part>& parts, const Run& found) {
  using enum Promise;
  const plan::Plan& plan = parts.back().plan;
  const bool half = plan.training.dtype == DType::bfloat16 || t.options.autocast;
  const bool exact = plan.training.dtype == DType::float64, sgd = plan.training.optimizer == OptimizerName::sgd;
  const bool by_hand = t.spec.precision == plan::Precision::plain && t.options.rules == run::WeightRules{} &&
                       t.spec.memory_format == MemoryFormat::contiguous;
  Promise promise = promise_of(plan);
  if (promise != promise_of(parts.front().plan)) promise = rounding;
  const std::vector<std::string> kept = kept_names(resolve(plan.model));
  const double tolerance = !exact ? 1e-4 : sgd ? 1e-10 : 1e-7;
  const auto near = [&](const NamedTensors& expected) {
    CHECK(largest_difference(expected, found.tensors) < tolerance);
  };
  if (promise == stream) {
    const bool again = predicts(t.spec) && (!t.spec.recompute.empty() || !t.spec.rerun_layers.empty());
    if (half || !by_hand || t.resumed || again || !kept.empty() || shares_weights(t.spec.model) ||
        (!sgd && !exact))
      return Book::none;
    NamedTensors expected = train_stream(plan, t.options).tensors;
    for (std::size_t i = 0; i < expected.size(); ++i) {  // the recursion has no statistics of norms
      if (expected[i].first.find("running_") != std::string::npos) expected[i].second = found.tensors[i].second;
    }
    near(expected);
    return Book::stream;
  }
  if (promise == unknown || t.kind.schedule == "parameter-server") return Book::none;
  if (promise == rounding) {
    if (half || !by_hand || (!sgd && !exact)) return Book::none;
    near(train_alone(thawed(plan), t.options, Order::ascending, {}, kept).tensors);
    return Book::rounding;
  }
  if (!by_hand) {  // other tests hold one stage against PyTorch
    PlanSpec one = plain(t.spec);
    one.schedule = promise == reversed ? "gpipe-reverse" : "gpipe";
    one.cuts = {}, one.replicas = {}, one.chunks = 0;
    CHECK(first_difference(run_plan(make_plan(one), t.options).tensors, found.tensors) == "");
    return Book::bits;
  }
  const auto order = promise == reversed ? Order::descending : Order::ascending;
  const Trained expected = train_alone(thawed(plan), t.options, order, {}, kept);
  CHECK(first_difference(expected.tensors, found.tensors) == "");
  CHECK(found.report.step_losses == expected.losses);
  return Book::bits;
}

/// As the same training in one process and one run, by plans as plain as the bits allow.
void check_plain(const Training& t, const Run& found) {
  const PlanSpec bare = plain(t.spec);
  const bool is_plain = bare.shard == t.spec.shard && bare.recompute == t.spec.recompute &&
                        bare.rerun_layers == t.spec.rerun_layers;
  if (is_plain && bare.all_reduce_overlap == t.spec.all_reduce_overlap && t.ranks == 1 && !t.resumed) return;
  std::vector<Part> parts = parts_of(t, true);
  if (!t.elsewhere && parts.size() > 1) parts.erase(parts.begin());
  run::RunOptions options = t.options;
  const Run expected = run_in(1, parts, options);
  CHECK(first_difference(expected.tensors, found.tensors) == "");
  CHECK(found.report.step_losses == expected.report.step_losses);
  CHECK(found.report.skipped_steps == expected.report.skipped_steps);
  if (t.resumed) return;
  REQUIRE(found.report.epochs.size() == expected.report.epochs.size());
  for (std::size_t e = 0; e < found.report.epochs.size(); ++e)
    CHECK(found.report.epochs[e].test_loss == expected.report.epochs[e].test_loss);
  if (!is_plain) return;
  for (std::size_t w = 0; w < found.report.workers.size(); ++w) {
    CHECK(found.report.workers[w].sent_per_step == expected.report.workers[w].sent_per_step);
    CHECK(found.report.workers[w].peak_in_flight == expected.report.workers[w].peak_in_flight);
  }
}

Book check_training(Training t) {
  // A stream that goes on has been drained behind its checkpoint.
  if (t.resumed && is_stream(t.spec)) t.options.checkpoint_steps = *t.options.steps / 2;
  const std::vector<Part> parts = parts_of(t, false);
  const Run found = run_in(t.ranks, parts, t.options);
  check_kept(parts.back().plan, t.options, found.tensors);
  check_plain(t, found);
  return check_book(t, parts, found);
}

}  // namespace

TEST_SUITE("librun/promises") {
  TEST_CASE("the gradients by which the book trains are those of one autograd graph") {
    for (const Feature& feature : axes().front().features) {
      CAPTURE(feature.name);
      Training t = training_of(Row(axes().size(), 0), 0);
      feature.give(t);
      if (t.spec.model.loss->op == "graph") continue;  // its operations are LibTorch's, and round by themselves
      const plan::Plan plan =
          thawed(make_plan({.model = t.spec.model, .mini_batch = 12, .dtype = DType::float64}));
      run::RunOptions options;
      options.synthetic_samples = 12;
      WholeModel whole(plan, options);
      const LayerTensors weights = whole.initial_weights();
      const std::vector<std::int64_t> samples{3, 1, 4, 11, 5};
      const auto plain = whole.plain_gradient(weights, samples, 0.3, {7, 1, 2});
      const auto found = whole.gradient(weights, samples, 0.3, {7, 1, 2});
      CHECK(found.loss == doctest::Approx(plain.loss).epsilon(1e-12));
      const auto expected = flat(plain.weights), gradients = flat(found.weights);
      REQUIRE(gradients.size() == expected.size());
      for (std::size_t i = 0; i < gradients.size(); ++i) CHECK(gradients[i].allclose(expected[i], 1e-9, 1e-11));
    }
  }

  TEST_CASE("every two features are refused together with the table's words, or accepted") {
    int combined = 0, never = 0;
    for (const Pair& pair : all_pairs()) {
      Row row(axes().size(), 0);
      row[pair.first.first] = pair.first.second;
      row[pair.second.first] = pair.second.second;
      const std::string found = refusal(training_of(row, 0));
      const Refused* const entry = refused(pair);
      const bool expected = entry && !entry->accepted;
      CAPTURE(text_of(row));
      CAPTURE(found);
      CHECK(found.empty() != expected);
      if (expected) CHECK(found.find(entry->words) != std::string::npos);
      ++(entry ? never : combined);
    }
    MESSAGE(combined, " pairs are trained, ", never, " are not");
  }

  TEST_CASE("every two features that can be combined keep the promises of a training") {
    std::map<Book, int> counts;
    std::vector<Row> rows;
    Rows table;
    std::uint64_t draws = 1;
    for (; const std::optional<Row> row = table.next(draws); ++draws) {
      CAPTURE(text_of(*row));
      CAPTURE(draws);
      ++counts[check_training(training_of(*row, draws))];
      rows.push_back(*row);
    }
    MESSAGE(rows.size(), " trainings, by the book: ", counts[Book::bits], " bit for bit, ",
            counts[Book::rounding], " to rounding, ", counts[Book::stream], " streams, ", counts[Book::none],
            " without one");
    CHECK(counts[Book::bits] > counts[Book::rounding]);
    CHECK(counts[Book::stream] > 10);
  }

  // Each with a few rows whose other features leave it a book.
  TEST_CASE("larger families keep them") {
    std::vector<ModelGraph> models{model::build_family("resnet18:classes=4,image=32,width=4"),
                                   model::build_family("unet:image=64,B=1,C=4")};
    for (const std::string_view family : small::kDecoders) {
      ModelGraph model = model::build_family(family);
      if (std::ranges::count(model.layers, "grouped_query_attention", &Layer::op) > 0) models.push_back(model);
    }
    for (const char* name : {"mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "gpt_oss"}) {
      const Json document = parse_json(read_file(test_data(std::string("families/") + name + ".json")));
      models.push_back(model::build_hugging_face(document["config"], "sequence=8"));
    }
    REQUIRE(models.size() == 16);
    const Axis& schedules = axes()[1];
    Random random(5);
    int bits = 0;
    for (const ModelGraph& model : models) {
      for (int trained = 0; trained < 2;) {
        Row row(axes().size(), 0);
        for (std::size_t a = 1; a < row.size(); ++a) {
          const std::size_t feature = random.below(axes()[a].features.size());
          if (a == 1 || (random.one_in(2) && axes()[a].features[feature].book)) row[a] = feature;
        }
        CAPTURE(model.name);
        CAPTURE(text_of(row));
        const std::uint64_t draws = random.below(1000) + 1;
        if (schedules.features[row[1]].name == "partime" || !refusal(training_of(row, draws, &model)).empty())
          continue;
        bits += check_training(training_of(row, draws, &model)) == Book::bits;
        ++trained;
      }
    }
    CHECK(bits > 5);
  }
}

}  // namespace promises_test
