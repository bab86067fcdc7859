#include "libplan/peers/dapple_search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::vector<int> range(int first, int count) {
  std::vector<int> devices(at(count));
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

/// The all-reduce of one stage, of which `stage` blocks are hidden.
struct Reduce {
  double seconds = 0;
  int stage = 0;
};

/// A pipeline of the first layers.
struct Label {
  int end = 0;       ///< boundary
  int used = 0;      ///< devices
  int replicas = 0;  ///< of the last stage
  int stages = 0;
  double block = 0;  ///< of the whole mini-batch, not yet divided by the micro-batches
  double transfers = 0;
  std::vector<Reduce> reduces;  ///< none that another outlasts at every block
  int previous = -1;
};

/// Pipelines that continue alike: only the better of two needs to be kept.
using Key = std::tuple<int, int, int>;  ///< devices used, replicas of the last stage, stages

class Search {
 public:
  Search(const DappleCosts& costs, int copies, DappleBest& best)
      : costs_(costs),
        copies_(copies),
        micro_batches_(static_cast<double>(costs.batches) / copies),
        devices_(costs.machine.devices()),
        layers_(costs.chain.size()),
        best_(best),
        open_(at(layers_ + 1)) {}

  void run() {
    labels_.push_back({});
    extend(0);
    for (int end = 1; end < layers_; ++end) {
      for (const auto& [key, labels] : std::map(std::move(open_[at(end)]))) {
        for (const int label : labels) extend(label);
      }
    }
  }

 private:
  /// Never above the latency of any pipeline that continues this one.
  double bound(const Label& label) const {
    const double rest = costs_.compute(label.end, layers_);
    const int left = devices_ - label.used;
    if (rest > 0 && left == 0) return std::numeric_limits<double>::infinity();
    const double block = std::max(label.block, left > 0 ? rest / left : 0) / micro_batches_;
    double exposed = 0;
    for (const Reduce& reduce : label.reduces)
      exposed = std::max(exposed, reduce.seconds - reduce.stage * block);
    return block * (micro_batches_ - 1) + costs_.compute(0, layers_) / costs_.batches + label.transfers +
           exposed;
  }

  void extend(int from) {
    if (labels_[at(from)].stages + 1 > micro_batches_) return;
    const int left = devices_ - labels_[at(from)].used;
    const int least = copies_ > 1 ? copies_ : 1;
    const int most = copies_ > 1 ? copies_ : left;
    for (int replicas = least; replicas <= std::min(most, left); ++replicas) {
      for (int end = labels_[at(from)].end + 1; end <= layers_; ++end) {
        if (!add_stage(from, end, replicas)) break;  // a larger stage is slower still
      }
    }
  }

  /// False when the stage's own time is too long for every pipeline.
  bool add_stage(int from, int end, int replicas) {
    const Label& front = labels_[at(from)];
    Label label{end,         front.used + replicas, replicas,      front.stages + 1,
                front.block, front.transfers,       front.reduces, from};
    const double compute = costs_.compute(front.end, end) / replicas;
    label.block = std::max(label.block, compute);
    if (label.block / micro_batches_ * (micro_batches_ - 1) + costs_.compute(0, layers_) / costs_.batches >=
        best_.latency) {
      return false;
    }
    const std::vector<int> devices = range(front.used, replicas);
    if (front.stages > 0) {
      const std::vector<int> senders = range(front.used - front.replicas, front.replicas);
      const double transfer =
          transfer_per_byte(costs_.machine, senders, devices) * costs_.activation(front.end);
      label.block = std::max(label.block, transfer);
      label.transfers += transfer / costs_.batches;
    }
    add_reduce(label, all_reduce_per_byte(costs_.machine, devices) * costs_.reduced_bytes(front.end, end));
    if (bound(label) < best_.latency) keep(std::move(label));
    return true;
  }

  static void add_reduce(Label& label, double seconds) {
    const int stage = label.stages - 1;
    const bool outlasted = seconds <= 0 || std::any_of(label.reduces.begin(), label.reduces.end(),
                                                       [&](const Reduce& r) { return r.seconds >= seconds; });
    if (!outlasted) label.reduces.push_back({seconds, stage});
  }

  void keep(Label label) {
    if (label.end == layers_) {
      if (copies_ > 1 && label.used != devices_) return;
      best_.latency = bound(label);
      best_.pipeline = pipeline_of(label);
      return;
    }
    std::vector<int>& rivals = open_[at(label.end)][{label.used, label.replicas, label.stages}];
    const auto known = [&](int rival) { return dominates(labels_[at(rival)], label); };
    if (std::any_of(rivals.begin(), rivals.end(), known)) return;
    std::erase_if(rivals, [&](int rival) { return dominates(label, labels_[at(rival)]); });
    rivals.push_back(static_cast<int>(labels_.size()));
    labels_.push_back(std::move(label));
  }

  static bool dominates(const Label& a, const Label& b) {
    return a.block <= b.block && a.transfers <= b.transfers &&
           std::all_of(a.reduces.begin(), a.reduces.end(), [&](const Reduce& mine) {
             return std::any_of(b.reduces.begin(), b.reduces.end(), [&](const Reduce& other) {
               return mine.seconds <= other.seconds && mine.stage >= other.stage;
             });
           });
  }

  DapplePipeline pipeline_of(const Label& last) const {
    DapplePipeline pipeline{.cuts = {}, .devices = {}, .copies = copies_};
    for (const Label* label = &last; label->stages > 0; label = &labels_[at(label->previous)]) {
      pipeline.devices.push_back(range(label->used - label->replicas, label->replicas));
      if (label->end < layers_) pipeline.cuts.push_back(label->end);
    }
    std::reverse(pipeline.cuts.begin(), pipeline.cuts.end());
    std::reverse(pipeline.devices.begin(), pipeline.devices.end());
    return pipeline;
  }

  const DappleCosts& costs_;
  int copies_;
  double micro_batches_;
  int devices_;
  int layers_;
  DappleBest& best_;
  std::vector<Label> labels_;
  std::vector<std::map<Key, std::vector<int>>> open_;  ///< labels by boundary
};

}  // namespace

void search_dapple(const DappleCosts& costs, int copies, DappleBest& best) {
  Search(costs, copies, best).run();
}

}  // namespace pp::plan
