#include "libplan/schedule/ownership.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

class OwnerWalk {
 public:
  explicit OwnerWalk(const ProgramSet& set) : set_(set) {}

  void run() {
    for (std::size_t w = 0; w < set_.workers.size(); ++w) {
      last_.clear();
      for (std::size_t i = 0; i < set_.workers[w].size(); ++i) {
        worker_ = w, position_ = i;
        const OpKind kind = op().kind;
        if (kind == OpKind::forward && replicas() > 1) take();
        if (!set_.synchronous && (kind == OpKind::forward || completes_backward(kind))) take_turn();
      }
    }
  }

 private:
  const Op& op() const { return set_.workers[worker_][position_]; }
  int replicas() const { return static_cast<int>(set_.stage_workers[index(op().stage)].size()); }

  void take() {
    const auto [owner, added] = owners_.try_emplace({op().stage, op().micro_batch}, worker_);
    if (added) return;
    refuse("worker " + std::to_string(owner->second) +
           " runs this micro-batch; replicas that split one cannot be run: list it on one worker");
  }

  /// After micro-batch m of a stage comes m + replicas; a worker of several stages keeps count for each.
  void take_turn() {
    const auto [last, first] = last_.try_emplace({op().kind, op().stage}, op().micro_batch);
    if (first && op().micro_batch < replicas()) return;
    const int expected = first ? op().micro_batch % replicas() : last->second + replicas();
    last->second = op().micro_batch;
    if (op().micro_batch == expected) return;
    refuse("workers of a stream take turns, in ascending order: " +
           to_text(Op{op().kind, op().stage, expected}) + " comes here");
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::data, "worker " + std::to_string(worker_) + ", operation " +
                                     std::to_string(position_) + " (" + to_text(op()) + "): " + message);
  }

  const ProgramSet& set_;
  std::size_t worker_ = 0;
  std::size_t position_ = 0;
  std::map<std::pair<StageId, int>, std::size_t> owners_;  ///< of stages with several workers
  std::map<std::pair<OpKind, StageId>, int> last_;         ///< of the worker in hand: its last micro-batch
};

}  // namespace

void check_owners(const ProgramSet& set) { OwnerWalk(set).run(); }

}  // namespace pp::plan
