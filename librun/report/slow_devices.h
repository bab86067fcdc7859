// Which devices take longer than the plan promised, found while the training runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libplan/cost/links.h"
#include "libplan/plan/plan.h"
#include "librun/report/record.h"

namespace pp::run {

struct SlowDevice {
  WorkerId worker{};                                     ///< whose device it is
  std::int64_t first_step = 0;                           ///< from 1, of the training
  std::optional<std::int64_t> last_step = std::nullopt;  ///< none: it is slow to this day
  double factor =
      1;  ///< its work takes so many times as long as promised: median of the last samples in which it is slow
  bool operator==(const SlowDevice&) const = default;
};

/// `device cpu:1 on node2 (worker 3) takes 2.03 times as long as promised since step 41`
std::string slow_device_line(const SlowDevice& slow, const plan::Plan& plan);

/// What each worker's operations took in a step is compared with what the plan promises of them, and the
/// devices' part of it told from the layers' by plan::two_way_factors(): workers of the same stages tell them
/// apart; of others what exceeds plan::kUsualError over all of them is the device's. A device is slow when it
/// is slower by more than that, and than promised, in kSlow of the last kWindow samples. A sample is a step, or
/// as many as take kSample together: shorter ones say more of the operating system's turns than of the device.
/// So bursts that end within kSlow samples raise nothing.
class SlowDevices {
 public:
  static constexpr std::size_t kWindow = 20, kSlow = 17;
  static constexpr Seconds kSample{0.05};

  /// Watches nothing where the plan promises nothing, or replicas do not wait for each other: their steps have
  /// not the work of all.
  explicit SlowDevices(const plan::Plan& plan);

  struct Changes {
    std::vector<SlowDevice> slow = {};  ///< those that have become slow, and those that no longer are
    bool any = false;  ///< also where a device has become faster than promised by as much, or no longer is
  };
  /// The next step, of so many mini-batches, and the time since the one before. The first steps of a run tell
  /// nothing (kWarmUpSteps).
  Changes add(std::int64_t step, Seconds time, double mini_batches, std::span<const StepFigures> workers);

  /// In the order in which they became slow; the last kMost.
  std::vector<SlowDevice> found() const;
  static constexpr std::size_t kMost = 1000;
  /// Of each worker's device, over the last samples: its work takes so many times as long as promised.
  std::vector<double> factors() const;

 private:
  enum class State { as_promised, slow, fast };
  struct Sample {
    std::int64_t first_step = 0;
    double factor = 1;  ///< of the device alone
    State state = State::as_promised;
  };
  struct Watched {
    Seconds promised{};  ///< of a mini-batch
    Seconds busy{};      ///< since the last sample
    std::vector<Sample> last = {};
    State state = State::as_promised;
    std::optional<SlowDevice> slow = std::nullopt;  ///< while it is
  };

  Changes close();
  void note(Watched& worker, WorkerId id, Changes& changes);
  /// Median of the last samples, or of those in this state.
  static double middle_factor(const Watched& worker, std::optional<State> of = std::nullopt);

  std::vector<Watched> workers_;
  plan::TwoWayTable table_;      ///< its cells without ratios: one for each worker that promises something
  std::vector<WorkerId> ids_;    ///< of the cells
  std::int64_t steps_ = 0;       ///< since the run's first one
  std::int64_t first_step_ = 0;  ///< of the sample that is open; 0: none is
  Seconds time_{};
  double mini_batches_ = 0;
  std::vector<SlowDevice> past_;  ///< that are slow no longer
};

}  // namespace pp::run
