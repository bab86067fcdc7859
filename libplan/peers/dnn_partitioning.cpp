#include "libplan/peers/dnn_partitioning.h"

#include <algorithm>

#include "libplan/cost/constants.h"
#include "libplan/peers/set_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Something sent once by its producer and once to each device that reads it.
struct Transfer {
  double seconds = 0;
  int readers = 0;
};

double layer_bytes(const PeerInput& input, int layer) {
  const LayerProfile& profile = input.profile.layers[at(layer)];
  return static_cast<double>(input.prices[at(layer)].saved + profile.parameters.value);
}

/// The sum over the stage of one number per layer.
class BytesPrice : public StagePrice {
 public:
  explicit BytesPrice(const PeerInput& input) : input_(input) {}
  void clear() override { sum_ = 0; }
  void add(int layer) override { sum_ += layer_bytes(input_, layer); }
  double load() const override { return sum_; }

 private:
  const PeerInput& input_;
  double sum_ = 0;
};

/// Counts for every tensor which of its ends are in the stage.
class LoadPrice : public StagePrice {
 public:
  LoadPrice(const PeerInput& input, const PeerOptions& options, double limit)
      : input_(input), limit_(limit), owned_(at(input.size())), read_(at(input.size())) {
    for (int layer = 0; layer < input.size(); ++layer) {
      const GraphLayer& node = input.graph.layers[at(layer)];
      const auto [forward, gradient] = transfer_times(layer, options);
      add_transfer(forward, layer, node.consumers);
      add_transfer(gradient, layer, node.producers);
    }
    clear();
  }

  void clear() override {
    inside_.assign(transfers_.size(), {});
    compute_ = transfer_ = bytes_ = 0;
  }

  void add(int layer) override {
    compute_ += input_.compute(layer);
    bytes_ += layer_bytes(input_, layer);
    for (const int one : owned_[at(layer)]) change(one, [](Ends& ends) { ends.producer = true; });
    for (const int one : read_[at(layer)]) change(one, [](Ends& ends) { ++ends.readers; });
  }

  double load() const override { return bytes_ > limit_ ? kInfinity : compute_ + transfer_; }

 private:
  struct Ends {
    bool producer = false;
    int readers = 0;
  };

  /// Of what the layer sends to its consumers, and to its producers.
  std::pair<double, double> transfer_times(int layer, const PeerOptions& options) const {
    const LayerPoint& point = input_.profile.layers[at(layer)].points.front();
    if (point.transfer) {
      return {point.transfer->count(), point.gradient_transfer.value_or(Seconds()).count()};
    }
    const double bytes = 2.0 * static_cast<double>(input_.prices[at(layer)].output);  // and its gradient
    return {bytes / options.levels.front().bandwidth.value, 0};
  }

  void add_transfer(double seconds, int owner, const std::vector<int>& readers) {
    if (seconds <= 0 || readers.empty()) return;
    const int index = static_cast<int>(transfers_.size());
    transfers_.push_back({seconds, static_cast<int>(readers.size())});
    owned_[at(owner)].push_back(index);
    for (const int reader : readers) read_[at(reader)].push_back(index);
  }

  bool crosses(int one) const {
    const Ends& ends = inside_[at(one)];
    return ends.producer ? ends.readers < transfers_[at(one)].readers : ends.readers > 0;
  }

  template <class Edit>
  void change(int one, Edit edit) {
    const bool before = crosses(one);
    edit(inside_[at(one)]);
    const bool after = crosses(one);
    if (after && !before) transfer_ += transfers_[at(one)].seconds;
    if (before && !after) transfer_ -= transfers_[at(one)].seconds;
  }

  const PeerInput& input_;
  double limit_;
  std::vector<Transfer> transfers_;
  std::vector<std::vector<int>> owned_, read_;  ///< transfers by layer
  std::vector<Ends> inside_;
  double compute_ = 0, transfer_ = 0, bytes_ = 0;
};

/// The partition whose fullest device is emptiest says how far the limit is off.
Infeasible does_not_fit(const PeerInput& input, const SearchedSets& searched, int devices, double limit) {
  BytesPrice bytes(input);
  const SetPlan attempt = search_sets(searched, input.size(), bytes, devices);
  Infeasible none;
  for (std::size_t s = 0; s < attempt.stages.size(); ++s) {
    bytes.clear();
    for (const int layer : attempt.stages[s]) bytes.add(layer);
    if (bytes.load() < attempt.value) continue;
    none.stage = static_cast<int>(s);
    none.device = DeviceId{static_cast<int>(s)};
    none.layers = names_of(input, attempt.stages[s]);
  }
  none.smallest_limit = Bytes(static_cast<std::int64_t>(attempt.value));
  none.short_by = Bytes(static_cast<std::int64_t>(attempt.value - limit));
  none.reason = "does not fit " + std::to_string(devices) + " devices of " +
                std::to_string(static_cast<std::int64_t>(limit)) +
                " bytes: even the best split leaves device " + std::to_string(none.stage.value_or(0)) + " " +
                std::to_string(none.short_by.value) + " bytes short";
  none.remedy = "--memory-limit " + std::to_string(none.smallest_limit->value);
  return none;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_dnn_partitioning(const PeerInput& input, const PeerOptions& options) {
  const int devices = options.levels.front().devices;
  const SearchedSets searched = searched_sets(input);
  const double limit = input.memory_limit(options);
  LoadPrice price(input, options, limit);
  const SetPlan found = search_sets(searched, input.size(), price, devices);
  if (found.stages.empty()) return does_not_fit(input, searched, devices, limit);
  PeerPlan plan = empty_plan(input, options);
  for (const std::vector<int>& stage : found.stages) {
    double compute = 0;
    for (const int layer : stage) compute += input.compute(layer);
    plan.stages.push_back({names_of(input, stage), 1, Seconds(compute)});
  }
  plan.objective = Seconds(found.value);
  const Seconds spread(input.total_compute() / devices);
  plan.lower_bound = searched.every_order ? plan.objective : std::min(spread, plan.objective);
  plan.search = searched.words;
  return plan;
}

}  // namespace pp::plan
