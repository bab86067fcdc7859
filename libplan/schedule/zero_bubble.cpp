// ZB-H1 and ZB-H2, the hand-made schedules of Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24: the
// backward is split, the weight gradient waits where it fills what would be bubble.
#include <algorithm>

#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

/// Appends to one worker's list, each kind over micro-batches 0, 1, ... in turn.
class StageList {
 public:
  StageList(StageId stage, int micro_batches) : stage_(stage), micro_batches_(micro_batches) {}

  void forward() { append(OpKind::forward, forwards_); }
  void input_gradient() { append(OpKind::input_gradient, input_gradients_); }
  void weight_gradient() { append(OpKind::weight_gradient, weight_gradients_); }
  Program finish() {
    while (weight_gradients_ < micro_batches_) weight_gradient();
    return std::move(program_);
  }

 private:
  void append(OpKind kind, int& next) {
    if (next < micro_batches_) program_.push_back({kind, stage_, next++});
  }

  StageId stage_;
  int micro_batches_;
  int forwards_ = 0;
  int input_gradients_ = 0;
  int weight_gradients_ = 0;
  Program program_;
};

}  // namespace

/// As many micro-batches in flight as 1F1B: stage i postpones its first W until i input gradients are out.
Schedule generate_zb_h1(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  return replicated_schedule(request, [&](const StageReplica& replica) {
    const int i = number(replica.stage);
    StageList list(replica.stage, replica.count);
    for (int f = 0; f < k - 1 - i; ++f) list.forward();
    for (int b = 0; b < replica.count; ++b) {
      list.forward();
      list.input_gradient();
      if (b >= i) list.weight_gradient();
    }
    return list.finish();
  });
}

/// Up to 2(K-i)-1 in flight: the warm-up bubble is filled with forwards, W waits for 2i input gradients.
Schedule generate_zb_h2(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  return replicated_schedule(request, [&](const StageReplica& replica) {
    const int i = number(replica.stage);
    StageList list(replica.stage, replica.count);
    for (int f = 0; f < 2 * (k - i) - 1; ++f) list.forward();
    for (int b = 0; b < replica.count; ++b) {
      list.input_gradient();
      if (b >= 2 * i) list.weight_gradient();
      list.forward();
    }
    return list.finish();
  });
}

}  // namespace pp::plan
