// Runs on files: every format trains to the bits of the same samples in memory or in another format.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"
#include "librun/data/synthetic.h"
#include "librun/setup/make_setup.h"
#include "librun/worker/worker.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/folder.h"
#include "tests/librun/jobs.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace data_test {

using namespace pp;
using run::MemoryDataset;
using run::Subset;

namespace {

namespace fs = std::filesystem;

std::string raw(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

std::string tuple_of(const at::Tensor& tensor) {
  std::string text = "(";
  for (const std::int64_t size : tensor.sizes()) text += std::to_string(size) + ",";
  return text + ")";
}

/// Names and values of all inputs and targets.
test::NamedTensors tensors(const ModelGraph& graph, const MemoryDataset& data) {
  test::NamedTensors named;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    named.emplace_back(graph.inputs[i].name, data.inputs[i].values);
  for (std::size_t i = 0; i < graph.targets.size(); ++i)
    named.emplace_back(graph.targets[i].name, data.targets[i].values);
  return named;
}

std::string safetensors(const test::NamedTensors& named) {
  std::string header = "{", data;
  for (const auto& [name, values] : named) {
    const std::string bytes = raw(values), begin = std::to_string(data.size());
    data += bytes;
    std::string shape = tuple_of(values);
    shape = "[" + shape.substr(1, shape.size() - 3) + "]";
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":")" +
              (values.scalar_type() == at::kLong ? "I64" : "F32") + R"(","shape":)" + shape +
              R"(,"data_offsets":[)" + begin + "," + std::to_string(data.size()) + "]}";
  }
  return test::safetensors_bytes(header + "}", data);
}

std::string npy(const at::Tensor& values) {
  return test::npy_bytes(values.scalar_type() == at::kLong ? "<i8" : "<f4", tuple_of(values), raw(values));
}

/// The synthetic samples of the plan's model.
MemoryDataset samples_of(const plan::Plan& plan, const run::RunOptions& options, Subset subset) {
  const bool training = subset == Subset::training;
  return run::make_synthetic(resolve(plan.model),
                             training ? options.synthetic_samples : options.synthetic_samples / 4, options.seed,
                             subset, plan.training.dtype);
}

/// 22 samples: the last mini-batch of an epoch has 6 in 2, 2, 1, 1.
run::RunOptions settings() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 22;
  options.epochs = 2;
  options.seed = 3;
  return options;
}

void check_equal(const test::Run& expected, const test::Run& found) {
  CHECK(test::first_difference(expected.tensors, found.tensors) == "");
  CHECK(expected.report.step_losses == found.report.step_losses);
  REQUIRE(expected.report.epochs.size() == found.report.epochs.size());
  for (std::size_t e = 0; e < expected.report.epochs.size(); ++e) {
    CHECK(expected.report.epochs[e].test_loss == found.report.epochs[e].test_loss);
    CHECK(expected.report.epochs[e].test_accuracy == found.report.epochs[e].test_accuracy);
  }
}

test::Run run_on(const plan::Plan& plan, run::RunOptions options, const fs::path& data) {
  options.data = data.string();
  return test::run_plan(plan, options);
}

/// 24 images of 5 bytes and labels of 3 classes, split as 18 and 6.
struct Images {
  at::Tensor pixels = at::arange(120, at::kLong).mul(37).remainder(251).to(at::kByte).reshape({24, 5});
  at::Tensor labels = at::arange(24, at::kLong).mul(5).remainder(3).to(at::kByte);
  at::Tensor part(const at::Tensor& all, Subset subset) const {
    return subset == Subset::training ? all.narrow(0, 0, 18) : all.narrow(0, 18, 6);
  }
};

constexpr std::array kSubsets{std::pair{Subset::training, "train"}, std::pair{Subset::test, "test"}};

void write_idx(const TestFolder& folder, const Images& images) {
  for (const auto& [subset, name] : kSubsets) {
    const at::Tensor pixels = images.part(images.pixels, subset), labels = images.part(images.labels, subset);
    folder.write(std::string(name) + "-images.idx",
                 run::idx_bytes(run::ElementType::uint8, pixels.sizes().vec(), raw(pixels)));
    folder.write(std::string(name) + "-labels.idx",
                 run::idx_bytes(run::ElementType::uint8, labels.sizes().vec(), raw(labels)));
  }
}

void write_csv(const TestFolder& folder, const Images& images) {
  for (const auto& [subset, name] : kSubsets) {
    const at::Tensor pixels = images.part(images.pixels, subset), labels = images.part(images.labels, subset);
    std::string text = "a,b,c,d,e,digit\n";
    for (std::int64_t i = 0; i < labels.size(0); ++i) {
      for (std::int64_t p = 0; p < 5; ++p) text += std::to_string(pixels[i][p].item<int>()) + ",";
      text += std::to_string(labels[i].item<int>()) + "\n";
    }
    folder.write(std::string(name) + ".csv", text);
  }
}

/// What was read, by whom, in which order.
struct Readings {
  std::mutex mutex;
  std::map<std::pair<TensorSource::Kind, int>, std::vector<std::int64_t>> samples;
  std::set<std::thread::id> readers;
};

/// Samples in memory that say they are not.
class WatchedDataset final : public run::Dataset {
 public:
  WatchedDataset(MemoryDataset data, bool in_memory, Readings& readings)
      : data_(std::move(data)), in_memory_(in_memory), readings_(readings) {}
  const std::string& source() const override { return data_.source(); }
  std::int64_t samples() const override { return data_.samples(); }
  bool in_memory() const override { return in_memory_; }
  at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples,
                  bool pinned) const override {
    const std::lock_guard held(readings_.mutex);
    auto& read = readings_.samples[{source.kind, source.index}];
    read.insert(read.end(), samples.begin(), samples.end());
    readings_.readers.insert(std::this_thread::get_id());
    return data_.rows(source, samples, pinned);
  }

 private:
  MemoryDataset data_;
  bool in_memory_;
  Readings& readings_;
};

/// Trains both workers of a plan on watched samples; the threads of the workers.
std::set<std::thread::id> train_watched(const plan::Plan& plan, run::RunOptions options, bool in_memory,
                                        Readings& readings) {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  options.before_op = [&](std::int64_t, WorkerId, const plan::Op&) {
    const std::lock_guard held(mutex);
    threads.insert(std::this_thread::get_id());
  };
  run::Job job(plan, options, run::make_setup(plan, options));
  job.training =
      std::make_unique<WatchedDataset>(samples_of(plan, options, Subset::training), in_memory, readings);
  test::command_all(job);
  run::Worker first(job, WorkerId{0}), second(job, WorkerId{1});
  std::thread one([&] { first.run(); }), two([&] { second.run(); });
  one.join();
  two.join();
  REQUIRE(job.coordinator.error() == nullptr);
  return threads;
}

/// Two stages with dropout, so that the first and the last worker read data.
plan::Plan two_stages() { return make_plan({.model = test::dropout_mlp(), .cuts = {3}}); }

/// The samples of a synthetic run, as files.
void write_safetensors(const TestFolder& folder, const plan::Plan& plan, const run::RunOptions& options) {
  for (const auto& [subset, name] : kSubsets)
    folder.write(std::string(name) + ".safetensors",
                 safetensors(tensors(plan.model, samples_of(plan, options, subset))));
}

}  // namespace

TEST_SUITE("librun/data") {
  TEST_CASE("safetensors and .npy of the synthetic samples train to the bits of the run in memory") {
    const std::vector<PlanSpec> specs{
        {.model = test::dropout_mlp(), .cuts = {3}},
        {.model = test::dropout_mlp(), .cuts = {3}, .schedule = "zb-h1"},
        {.model = test::mlp(3), .cuts = {2, 4}, .schedule = "pipedream", .mini_batch = 2, .micro_batches = 1},
        {.model = test::mlp(3), .cuts = {2}, .replicas = {2, 1}},
        {.model = test::mlp(3), .cuts = {2}, .recompute = {plan::Recompute::always}},
        {.model = test::mlp(3), .cuts = {1, 3, 5}, .schedule = "interleaved"}};
    for (const PlanSpec& spec : specs) {
      CAPTURE(spec.schedule);
      const plan::Plan plan = make_plan(spec);
      run::RunOptions options = settings();
      if (spec.schedule == "interleaved") options.synthetic_samples = 24;
      const test::Run expected = test::run_plan(plan, options);
      const TestFolder stored, arrays;
      for (const auto& [subset, name] : kSubsets) {
        const test::NamedTensors named = tensors(plan.model, samples_of(plan, options, subset));
        stored.write(std::string(name) + ".safetensors", safetensors(named));
        for (const auto& [tensor, values] : named) arrays.write(name + ("-" + tensor) + ".npy", npy(values));
      }
      check_equal(expected, run_on(plan, options, stored.path()));
      check_equal(expected, run_on(plan, options, arrays.path()));
    }
  }

  TEST_CASE("several inputs and targets of several types are found by name") {
    ModelGraph graph = test::regression();
    graph.inputs.push_back({"z", graph.inputs[0].type});
    graph.layers.insert(graph.layers.begin(), {"sum", "add", {graph.inputs[0].name, "z"}, {}, ""});
    graph.layers[1].inputs = {"sum"};
    const plan::Plan plan = make_plan({.model = graph, .cuts = {2}});
    const run::RunOptions options = settings();
    const test::Run expected = test::run_plan(plan, options);
    const TestFolder folder;
    write_safetensors(folder, plan, options);
    check_equal(expected, run_on(plan, options, folder.path()));
  }

  TEST_CASE("CSV with a scale trains to the bits of the IDX images") {
    const plan::Plan plan = two_stages();
    run::RunOptions options = settings();
    options.drop_last = true;  // 18 = 2 * 8 + 2
    const Images images;
    const TestFolder idx, csv;
    write_idx(idx, images);
    write_csv(csv, images);
    const test::Run expected = run_on(plan, options, idx.path());
    options.scale = 1.0 / 255;
    check_equal(expected, run_on(plan, options, csv.path()));
  }

  TEST_CASE("CIFAR-10 trains to the bits of the same images as IDX") {
    ModelGraph graph;
    graph.name = "pixels";
    graph.inputs = {{"x", {{3, 32, 32}, DType::float32}}};
    graph.targets = {{"y", {{}, DType::int64}}};
    graph.layers = {{"flatten", "flatten", {"x"}, {}, ""},
                    {"fc", "linear", {"flatten"}, {{"out_features", std::int64_t{8}}}, ""},
                    {"tanh", "tanh", {"fc"}, {}, ""},
                    {"head", "linear", {"tanh"}, {{"out_features", std::int64_t{10}}}, ""}};
    graph.outputs = {"head"};
    graph.loss = LossSpec{"cross_entropy", {"head", "y"}, {}};
    const plan::Plan plan = make_plan({.model = graph, .cuts = {2}});
    const at::Tensor pixels =
        at::arange(std::int64_t{17} * 3072, at::kLong).mul(41).remainder(251).to(at::kByte).reshape({17, 3072});
    const at::Tensor labels = at::arange(17, at::kLong).remainder(10).to(at::kByte);
    const TestFolder idx, cifar;
    idx.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {17, 3, 32, 32}, raw(pixels)));
    idx.write("train-labels.idx", run::idx_bytes(run::ElementType::uint8, {17}, raw(labels)));
    const std::string records = raw(at::cat({labels.unsqueeze(1), pixels}, 1));
    const std::size_t first = std::size_t{9} * 3073;
    cifar.write("data_batch_1.bin", records.substr(0, first));
    cifar.write("data_batch_2.bin", records.substr(first));
    run::RunOptions options = settings();
    options.drop_last = true;  // 17 = 2 * 8 + 1
    check_equal(run_on(plan, options, idx.path()), run_on(plan, options, cifar.path()));
  }

  TEST_CASE("tokens of one and of two bytes train to the bits of the same windows as tensors") {
    ModelGraph graph;
    graph.name = "language";
    graph.inputs = {{"tokens", {{6}, DType::int64}}};
    graph.targets = {{"next", {{6}, DType::int64}}};
    graph.layers = {{"embedding",
                     "embedding",
                     {"tokens"},
                     {{"num_embeddings", std::int64_t{128}}, {"embedding_dim", std::int64_t{4}}},
                     ""},
                    {"tanh", "tanh", {"embedding"}, {}, ""},
                    {"head", "linear", {"tanh"}, {{"out_features", std::int64_t{128}}}, ""}};
    graph.outputs = {"head"};
    graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
    const plan::Plan plan = make_plan({.model = graph, .cuts = {2}});
    const at::Tensor text =
        at::arange(30 * 6 + 4, at::kLong).mul(29).remainder(128);  // 30 windows, 3 left over
    const TestFolder folder;
    run::RunOptions options = settings();
    options.test_share = 0.2;
    const test::NamedTensors windows{{"tokens", text.narrow(0, 0, 180).reshape({30, 6})},
                                     {"next", text.narrow(0, 1, 180).reshape({30, 6})}};
    const test::Run expected = run_on(plan, options, folder.write("windows.safetensors", safetensors(windows)));
    REQUIRE(expected.report.epochs.back().test_loss.has_value());
    options.token_type = "uint8";
    check_equal(expected, run_on(plan, options, folder.write("text", raw(text.to(at::kByte)))));
    options.token_type = "uint16";
    check_equal(expected, run_on(plan, options, folder.write("text", raw(text.to(at::kShort)))));
    options.token_type = "uint32";
    check_equal(expected, run_on(plan, options, folder.write("text", raw(text.to(at::kInt)))));
  }

  TEST_CASE("other threads than the workers' read ahead: the same samples in the same order") {
    run::RunOptions options = settings();
    options.evaluate = false;
    for (const std::vector<plan::Recompute>& recompute :
         {std::vector<plan::Recompute>{}, std::vector{plan::Recompute::always}}) {
      const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}, .recompute = recompute});
      Readings direct, ahead;
      const auto workers = train_watched(plan, options, /*in_memory=*/true, direct);
      CHECK((direct.readers == workers));
      const auto others = train_watched(plan, options, /*in_memory=*/false, ahead);
      CHECK((ahead.samples == direct.samples));
      CHECK(ahead.readers.size() == 2);
      for (const std::thread::id reader : ahead.readers) CHECK_FALSE(others.contains(reader));
    }
  }

  TEST_CASE("what is read ahead counts at a worker once its operation takes it: peaks are those in memory") {
    const plan::Plan plan = make_plan({.model = test::skip_mlp(64), .cuts = {2, 4}, .mini_batch = 32});
    run::RunOptions options = settings();
    options.synthetic_samples = 64;
    options.evaluate = false;
    const TestFolder folder;
    const fs::path file = folder.write(
        "data.safetensors", safetensors(tensors(plan.model, samples_of(plan, options, Subset::training))));
    const test::Run expected = test::run_plan(plan, options), found = run_on(plan, options, file);
    for (std::size_t w = 0; w < expected.report.workers.size(); ++w)
      CHECK(found.report.workers[w].peak == expected.report.workers[w].peak);
  }

  TEST_CASE("a file that becomes shorter ends the run at the operation that reads beyond its end") {
    const plan::Plan plan = two_stages();
    run::RunOptions options = settings();
    options.synthetic_samples = 64;
    options.evaluate = false;
    options.shuffle = false;
    const TestFolder folder;
    const fs::path file =
        folder.write("data.safetensors",
                     safetensors({{"y", at::arange(64, at::kLong).remainder(3)}, {"x", at::ones({64, 5})}}));
    // Inputs are at the end, 20 bytes each: cut behind sample 40. Step 5 is samples 40 to 47 in twos.
    const auto size = fs::file_size(file);
    options.before_op = [&](std::int64_t step, WorkerId, const plan::Op&) {
      if (step == 0 && fs::file_size(file) == size) fs::resize_file(file, size - 23 * 20);
    };
    std::string message;
    try {
      run_on(plan, options, file);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::run);
      message = error.what();
    }
    const auto end = std::to_string(size - 23 * 20);
    CHECK(message == "worker 0: stage 0: F0.0: " + file.string() + ": ends at byte " + end + ", it had " +
                         std::to_string(size) + " bytes; data must not change during a run");
  }

  TEST_CASE("a deleted file is read to the end of the run") {
    const plan::Plan plan = two_stages();
    const run::RunOptions options = settings();
    const test::Run expected = test::run_plan(plan, options);
    const TestFolder folder;
    write_safetensors(folder, plan, options);
    run::RunOptions deleting = options;
    deleting.before_op = [&](std::int64_t, WorkerId worker, const plan::Op&) {
      if (worker == WorkerId{0}) fs::remove(folder.path() / "train.safetensors");
    };
    check_equal(expected, run_on(plan, deleting, folder.path()));
  }

  TEST_CASE("a run that is interrupted, and one that fails, end with what was read ahead") {
    const plan::Plan plan = two_stages();
    run::RunOptions options = settings();
    options.synthetic_samples = 64;
    options.epochs = 1000;
    const TestFolder folder;
    write_safetensors(folder, plan, options);
    options.data = folder.path().string();
    test::SilentObserver observer;
    const run::RunReport report =
        test::run_checked(plan, options, observer, [&] { return observer.steps.size() >= 10; });
    CHECK(report.exit_reason == "interrupted");
    CHECK(report.step_losses.size() < 20);
    options.before_op = [](std::int64_t step, WorkerId worker, const plan::Op&) {
      if (step == 3 && worker == WorkerId{1}) throw Error(ErrorKind::run, "on purpose");
    };
    CHECK_THROWS_AS(test::run_checked(plan, options, observer), Error);
    CHECK(run::runs_left_behind() == 0);
  }
}

}  // namespace data_test
