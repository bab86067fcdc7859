// The versions of one stage's weights: which one a micro-batch runs on, and how long each is kept (policies:
// libplan/schedule/versions.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "libplan/schedule/versions.h"
#include "libprofile/core/units.h"
#include "librun/stage/flat_layout.h"

namespace pp::run {

/// Buffers are used again: in steady state an update allocates nothing. Not thread-safe.
///
/// | policy | a forward takes | an update |
/// |---|---|---|
/// | flush, stash, macrobatch | the newest, kept for its backward | in place where no pass holds the newest |
/// | vertical_sync | max(0, step - (stages - 1)) | from the newest into another buffer |
/// | two_buffered | max(0, step - 1) | from the newest into another buffer |
/// | latest | the newest | in place, also under passes |
/// | predict | a buffer that is filled anew before each forward and backward, for forwards of one step alike |
/// in place |
///
/// Steps count from restart(), as versions do there.
class WeightVersions {
 public:
  /// `layout` must outlive it. `first` is version 0. `stages`: of the whole pipeline; `stage`: the place in
  /// it; `per_update`: micro-batches.
  WeightVersions(const FlatLayout& layout, FlatLayout::Buffers first, plan::WeightPolicy policy, int stages,
                 int stage = 0, int per_update = 1);

  /// The newest weights become the only version: a stream begins (again). Nothing is in flight.
  void restart();

  /// What a forward of `step` runs on; forwards come in ascending steps. Whoever holds it keeps the version.
  /// Throws pp::Error (internal) for a version that does not exist yet, which a valid program never asks for.
  std::shared_ptr<const model::Weights> for_forward(std::int64_t step);

  /// Per parameter of the layout.
  struct Update {
    std::span<const at::Tensor> weights;  ///< from now on the newest version
    std::span<const at::Tensor> before;   ///< the version before, where the update is not in place; else empty
  };
  /// What the update of `step` makes of what. Where it is not in place, the weights are arbitrary until then.
  Update begin_update(std::int64_t step);

  /// Where predict looks ahead: what passes run on, per parameter of the layout, whatever they have begun with.
  /// Else empty: they run on versions.
  std::span<const at::Tensor> predicted() const;
  /// What forwards of one step share, when a step has several; else empty.
  std::span<const at::Tensor> shared() const;
  /// Passes run on what is shared from now on.
  void run_on_shared();
  plan::LookAhead look_ahead() const { return look_ahead_; }

  const model::Weights& newest() const { return kept_.back()->leaves; }
  /// The same, per parameter of the layout: to be read, or changed before anything runs.
  std::span<const at::Tensor> newest_parameters() const { return kept_.back()->parameters; }
  const at::Tensor& newest_flat() const { return kept_.back()->flat; }
  /// What is not trained, the same for all versions: the buffer, and per entry of FlatLayout::frozen().
  const at::Tensor& frozen_flat() const { return frozen_; }
  std::span<const at::Tensor> frozen_parameters() const { return frozen_parameters_; }
  std::shared_ptr<const model::Weights> newest_shared() const;
  /// Updates so far.
  int version() const { return kept_.back()->leaves.version; }
  /// Versions that a forward may still take or a pass holds, the newest among them.
  int count() const;
  Bytes bytes_of_one() const;  ///< without what is frozen

 private:
  struct Version {
    at::Tensor flat;
    std::vector<at::Tensor> parameters;  ///< views of it
    model::Weights leaves;
  };

  int wanted(std::int64_t step) const;
  void drop_below(int version);
  void refer_to(Version& version, at::Tensor flat) const;
  bool held(const std::shared_ptr<Version>& version) const;
  /// A buffer that nobody reads. Parameters in it are arbitrary; what lies between them is zero.
  std::shared_ptr<Version> unused();

  const FlatLayout& layout_;
  plan::WeightPolicy policy_;
  at::Tensor frozen_;
  std::vector<at::Tensor> frozen_parameters_;  ///< views of it
  int delay_ = 0;  ///< versions that a forward looks back by; 0: it takes the newest
  int base_ = 0;   ///< version of the last restart
  std::int64_t last_forward_ = 0;
  plan::LookAhead look_ahead_;
  std::vector<std::shared_ptr<Version>> all_;
  std::deque<std::shared_ptr<Version>> kept_;  ///< ascending; the newest last
  std::shared_ptr<Version> predicted_;         ///< null: the policy does not look ahead here
  std::shared_ptr<Version> shared_;            ///< null: nor does a step have several micro-batches
};

}  // namespace pp::run
