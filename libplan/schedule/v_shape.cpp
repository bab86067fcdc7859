// Two stages per worker in V placement: down to the last worker and back up. ZB-V (Qi et al., "Pipeline
// Parallelism with Controllable Memory", NeurIPS'24) and DualPipeV (after DeepSeek-V3's DualPipe, 2024; 4.6).
#include <algorithm>
#include <array>
#include <deque>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Worker r's list; chunk 0 is stage r, chunk 1 stage 2K-1-r.
class VList {
 public:
  VList(int workers, int worker) : stages_{StageId{worker}, StageId{2 * workers - 1 - worker}} {}

  int forwards(int chunk) const { return forwards_[at(chunk)]; }
  /// Weight gradients owed.
  int owed(int chunk) const { return input_gradients_[at(chunk)] - weight_gradients_[at(chunk)]; }

  void f(int chunk) { append(OpKind::forward, chunk, forwards_); }
  void i(int chunk) {
    waiting_.push_back(chunk);
    append(OpKind::input_gradient, chunk, input_gradients_);
  }
  void w(int chunk) { append(OpKind::weight_gradient, chunk, weight_gradients_); }
  /// B and I take micro-batches from one count; DualPipeV's W follows its I in the order in which they came.
  void b(int chunk) {
    ++weight_gradients_[at(chunk)];
    append(OpKind::backward, chunk, input_gradients_);
  }
  void oldest_w() {
    w(waiting_.front());
    waiting_.pop_front();
  }

  /// Without what lies beyond the last micro-batch, with both stages' updates.
  Program finish(int micro_batches) {
    std::erase_if(program_, [&](const Op& op) { return op.micro_batch >= micro_batches; });
    append_updates(program_, {stages_[0], stages_[1]}, 1);
    return std::move(program_);
  }

 private:
  void append(OpKind kind, int chunk, std::array<int, 2>& next) {
    program_.push_back({kind, stages_[at(chunk)], next[at(chunk)]++});
  }

  std::array<StageId, 2> stages_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> input_gradients_{};
  std::array<int, 2> weight_gradients_{};
  std::deque<int> waiting_;  ///< chunks of the I without W, oldest first
  Program program_;
};

template <class Fill>
Schedule v_schedule(const ScheduleRequest& request, Fill fill) {
  const int k = static_cast<int>(request.replicas.size());
  Schedule schedule{v_placement(k), {}};
  for (int r = 0; r < k; ++r) {
    VList list(k, r);
    fill(list, k, r);
    schedule.workers.push_back({list.finish(request.micro_batches), std::nullopt});
  }
  return schedule;
}

/// Written for n >= 2K-1 micro-batches; the steady part pairs one micro-batch of chunk 0 with one of chunk 1.
void fill_zb_v(VList& list, int k, int r, int n) {
  const auto backward = [&](int chunk) { list.i(chunk), list.w(chunk); };
  for (int i = 0; i < 2 * (k - r) - 1; ++i) list.f(0);
  for (int i = 0; i < r; ++i) list.f(1), list.f(0);
  for (int i = 0; i < k - r; ++i) list.f(1), backward(1);
  while (list.forwards(0) < n || list.forwards(1) < list.forwards(0)) {
    if (list.forwards(0) < n) list.f(0);
    backward(0);
    list.f(1);
    backward(1);
  }
  for (int i = 0; i < r; ++i) list.i(0), list.i(1);
  for (int i = 0; i < k - r; ++i) backward(0);
  while (list.owed(1) > 0) list.w(1);
  while (list.owed(0) > 0) list.w(0);
}

/// The eight steps of the released schedule; a block "x & y" runs x, then y.
void fill_dualpipe_v(VList& list, int k, int r, int micro_batches) {
  const int rest = k - r - 1;
  for (int i = 0; i < 2 * rest; ++i) list.f(0);
  for (int i = 0; i < r + 1; ++i) list.f(0), list.f(1);
  for (int i = 0; i < rest; ++i) list.i(1), list.oldest_w(), list.f(1);
  for (int i = 0; i < micro_batches - 2 * k + r + 1; ++i) list.f(0), list.b(1), list.f(1), list.b(0);
  for (int i = 0; i < rest; ++i) list.b(1), list.f(1), list.b(0);

  bool split = false;
  const auto backward = [&](int chunk) { split ? list.i(chunk) : list.b(chunk); };
  const bool odd = r % 2 == 1;
  for (int i = 0; i <= r; ++i) {
    const bool half_way = i == (r + 1) / 2;
    if (half_way && odd) split = true;
    backward(1);
    if (half_way && !odd) split = true;
    backward(0);
  }
  for (int i = 0; i < rest; ++i) list.oldest_w(), list.i(0);
  for (int i = 0; i < r + 1; ++i) list.oldest_w();
}

}  // namespace

Schedule generate_zb_v(const ScheduleRequest& request) {
  return v_schedule(request, [&](VList& list, int k, int r) {
    fill_zb_v(list, k, r, std::max(2 * k - 1, request.micro_batches));
  });
}

Schedule generate_dualpipe_v(const ScheduleRequest& request) {
  const int least = 2 * static_cast<int>(request.replicas.size());
  if (request.micro_batches < least) {
    refuse(request, "micro_batches = " + std::to_string(request.micro_batches) +
                        " is less than 2*workers = " + std::to_string(least));
  }
  return v_schedule(request,
                    [&](VList& list, int k, int r) { fill_dualpipe_v(list, k, r, request.micro_batches); });
}

}  // namespace pp::plan
