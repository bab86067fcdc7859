// The recorded passes of a stage: as many as micro-batches are in flight at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "librun/stage/graph_count.h"
#include "librun/stage/pass_kind.h"
#include "librun/stage/recorded_pass.h"

namespace pp::run {

/// The first step runs as without recording, so that libraries have what they keep; from the second on passes
/// are recorded when they are needed, for micro-batches as large as those of the first step, and used again by
/// passes of the same kind.
class RecordedPasses {
 public:
  /// `kinds`: of the forwards of a mini-batch, in their order. `payer` is charged for the memory of all. The
  /// segment must outlive it.
  RecordedPasses(const model::Segment& segment, std::vector<PassKind> kinds,
                 const profile::MemoryAccount& payer)
      : segment_(segment), kinds_(std::move(kinds)), payer_(payer) {}

  /// For the next forward; it is the caller's until give(). Null: it runs without. Weights and context are the
  /// same at all calls.
  RecordedPass* take(const std::shared_ptr<const model::Weights>& weights, model::TensorSpan inputs,
                     const model::PassContext& context);
  void give(RecordedPass* pass);
  /// An update: its mini-batches are over.
  void end_step();

  GraphCount count() const;

 private:
  struct Entry {
    PassKind kind;
    std::int64_t rows = 0;
    bool taken = false;
    std::unique_ptr<RecordedPass> pass;
  };

  const model::Segment& segment_;
  std::vector<PassKind> kinds_;
  profile::MemoryAccount payer_;
  std::vector<Entry> entries_;
  std::set<std::int64_t> rows_;  ///< of the first step's micro-batches
  std::int64_t replayed_ = 0;
  std::size_t forwards_ = 0;  ///< of this step
  bool warm_ = false;         ///< a step has ended
};

}  // namespace pp::run
