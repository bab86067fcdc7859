// Plans over a transport that hands over bytes alone, as one between processes does: the receiver knows from
// its program what comes, and has made room for it.
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "librun/drive/driver.h"
#include "librun/drive/work.h"
#include "librun/setup/make_setup.h"
#include "librun/threads/message_queue.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace message_passing_test {

using namespace pp;
using namespace pp::run;

namespace {

using Bytestring = std::vector<char>;

class BytesTransport final : public Transport {
 public:
  BytesTransport(Coordinator& coordinator, std::vector<Channel> channels) : channels_(std::move(channels)) {
    for (const Channel& channel : channels_)
      queues_.push_back(
          std::make_unique<MessageQueue<Bytestring>>(coordinator, channel.from, channel.to, channel.window));
  }

  void expect(int channel, std::int64_t number, int rows) override {
    const Channel& of = channels_.at(static_cast<std::size_t>(channel));
    std::vector<std::int64_t> sizes{rows};
    sizes.insert(sizes.end(), of.shape.begin(), of.shape.end());
    const std::lock_guard held(mutex_);
    const bool is_new =
        room_.try_emplace({channel, number}, at::empty(sizes, model::scalar_type(*of.dtype))).second;
    if (!is_new) throw Error(ErrorKind::internal, describe(of, number) + " is expected twice");
  }

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    if (!tensor.is_contiguous()) throw Error(ErrorKind::internal, "the message is not contiguous");
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    queues_[static_cast<std::size_t>(channel)]->put(
        number, [&](Bytestring& bytes) { bytes.assign(data, data + tensor.nbytes()); }, [] { return "room"; });
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    at::Tensor tensor;
    {
      const std::lock_guard held(mutex_);
      auto posted = room_.extract({channel, number});
      if (posted.empty()) throw Error(ErrorKind::internal, "an unexpected message");
      tensor = std::move(posted.mapped());
    }
    const Bytestring bytes = queues_[static_cast<std::size_t>(channel)]->take(
        number, [](Bytestring& message) { return message; }, [] { return "bytes"; });
    if (bytes.size() != tensor.nbytes())
      throw Error(ErrorKind::internal, describe(channels_[static_cast<std::size_t>(channel)], number) + ": " +
                                           std::to_string(bytes.size()) + " bytes came, there was room for " +
                                           std::to_string(tensor.nbytes()));
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  /// Messages that were expected and not received.
  std::size_t left() const { return room_.size(); }

 private:
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<MessageQueue<Bytestring>>> queues_;
  std::mutex mutex_;
  std::map<std::pair<int, std::int64_t>, at::Tensor> room_;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
  std::optional<double> test_loss;
};

Outcome outcome_of(Job& job) {
  Crew crew(job);
  pp::test::SilentObserver observer;
  const std::function<bool()> never = [] { return false; };
  Driver driver(job, observer, never);
  driver.drive();
  crew.join();
  Outcome outcome;
  for (const StepRecord& step : driver.steps()) outcome.losses.push_back(step.loss);
  for (const auto& worker : crew.workers()) {
    for (const auto& [id, stage] : worker->stages()) {
      for (const auto& layer : stage.weights().layers)
        outcome.weights.insert(outcome.weights.end(), layer.begin(), layer.end());
    }
  }
  if (!driver.epochs().empty()) outcome.test_loss = driver.epochs().back().test_loss;
  return outcome;
}

void check_equal(const plan::Plan& plan, const RunOptions& options) {
  Job by_reference(plan, options, make_setup(plan, options)),
      by_bytes(plan, options, make_setup(plan, options));
  auto transport = std::make_unique<BytesTransport>(by_bytes.coordinator, by_bytes.channels.list());
  const BytesTransport& used = *transport;
  by_bytes.transport = std::move(transport);
  const Outcome expected = outcome_of(by_reference), found = outcome_of(by_bytes);
  REQUIRE(by_bytes.coordinator.error() == nullptr);
  CHECK(used.left() == 0);
  CHECK(found.losses == expected.losses);
  CHECK(found.test_loss == expected.test_loss);
  REQUIRE(found.weights.size() == expected.weights.size());
  for (std::size_t i = 0; i < found.weights.size(); ++i) CHECK(found.weights[i].equal(expected.weights[i]));
}

}  // namespace

TEST_SUITE("librun/message_passing") {
  TEST_CASE(
      "what plan and model say of each message is enough to receive it as bytes, made room for in advance") {
    RunOptions options;
    options.data = "synthetic";
    options.epochs = 2;
    options.learning_rate = 0.05;
    const ModelGraph language = model::build_family(
        "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2,tied=1");
    const ModelGraph recurrent = model::build_family("gnmt:layers=3,width=8,vocabulary=13,source=5,target=4");
    for (const PlanSpec& spec :
         {PlanSpec{.model = pp::test::skip_mlp(), .cuts = {2, 4}, .micro_batches = 2},
          PlanSpec{.model = pp::test::dropout_mlp(), .cuts = {3}, .replicas = {2, 1}, .micro_batches = 2},
          PlanSpec{.model = language, .cuts = {3}, .micro_batches = 2, .recompute = {plan::Recompute::always}},
          PlanSpec{.model = recurrent, .cuts = {2, 4}, .schedule = "gpipe", .micro_batches = 2},
          PlanSpec{.model = pp::test::mlp(3), .cuts = {1, 3, 5}, .schedule = "interleaved", .micro_batches = 2},
          PlanSpec{.model = pp::test::mlp(3), .cuts = {1, 3, 5}, .schedule = "zb-v", .micro_batches = 2},
          PlanSpec{.model = pp::test::mlp(2),
          .cuts = {2},
          .replicas = {2, 1},
          .schedule = "pipedream",
          .mini_batch = 4,
          .micro_batches = 1}}) {
      CAPTURE(spec.schedule);
      // Synchronous: 8, 8, 8, 2, so that the last mini-batch has micro-batches of one sample.
      options.synthetic_samples = spec.schedule == "pipedream" ? 24 : 26;
      check_equal(make_plan(spec), options);
    }
  }

  TEST_CASE("float64 and accumulated mini-batches change types and numbers, not the bits") {
    RunOptions options;
    options.data = "synthetic";
    options.synthetic_samples = 40;
    options.epochs = 2;
    options.accumulate = 3;  // steps of 3 and 2 mini-batches
    check_equal(make_plan({.model = pp::test::residual_net(), .cuts = {4, 9}, .dtype = DType::float64}),
                options);
  }
}

}  // namespace message_passing_test
