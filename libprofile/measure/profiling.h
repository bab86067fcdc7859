// One profile in the making: devices, the byte passes, the rounds of timing, the optimizers, and the document
// from them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/device/machine.h"
#include "libprofile/measure/device_gang.h"
#include "libprofile/measure/layer_samples.h"
#include "libprofile/measure/model_runner.h"
#include "libprofile/measure/profile_run.h"

namespace pp::profile {

class Profiling {
 public:
  /// Starts the devices and draws the weights of `part`. Throws pp::Error (device) when these alone do not fit.
  /// All arguments must outlive it; `options` are checked.
  Profiling(const ResolvedModel& model, ModelPart part, const ProfileOptions& options, Observer& observer,
            const Environment& environment);

  /// The steps, in this order. The first also chooses the kernels of each size, but for those that are known. A
  /// size that does not fit is marked, and so are all above it; throws pp::Error (device) when none fits,
  /// (data) when the model cannot run.
  void measure_bytes(std::vector<KernelChoice> known = {});
  void measure_times();
  void measure_optimizers();
  /// `layers` are those of the part.
  Profile result() const;

 private:
  using Runners = std::vector<std::unique_ptr<ModelRunner>>;
  struct Size {
    std::int64_t micro_batch_size = 1;
    bool out_of_memory = false;
    PassBytes bytes;
    Seconds pass_time{};  ///< of the byte passes: a first guess
    int in_flight = 1;    ///< micro-batches in a pipeline's first part: one per device where memory allows
    LayerSamples samples;
  };

  at::Device device() const { return tensor_device(options_.devices.kind, options_.devices.first); }
  /// Of the device's thread, once.
  void enter(int device);
  /// `work` on every device at once, its allocations charged to the device's account.
  void on_devices(const std::function<void(int device, ModelRunner& runner)>& work);
  std::unique_ptr<ModelRunner> make_runner(const ModelPart& part, std::size_t device);
  /// Beside the batches of all sizes.
  void choose_in_flight();
  /// Leaves `parts_` empty where the model or the memory has no room for them.
  std::vector<ModelPart> parts() const;
  void make_parts();
  bool parts_fit() const;
  /// Adds the first device's time of the reference work.
  VisitTimes run_visit(const Visit& visit, std::vector<double>& reference);
  void use_kernels(const Runners& runners) const;
  /// What passes of size `size` run on.
  void choose_kernels(std::size_t size);
  PassBytes measure_bytes_at(std::size_t size);
  void give_up_from(std::size_t size);
  /// Whether a size twice as large could not be sampled within the budget.
  bool is_last(const Size& size) const;
  void report_interruptions(const class Rounds& rounds, std::span<const double> reference);
  Seconds remaining_before(std::size_t size) const;
  using MakeOptimizer = std::function<std::unique_ptr<model::Optimizer>()>;
  OptimizerProfile measure_optimizer(const std::string& name, const MakeOptimizer& make);
  std::vector<UpdatePoint> measure_updates(const MakeOptimizer& make, int pieces, int devices);
  std::optional<UpdatePoint> measure_new_version(const MakeOptimizer& make);
  void time_updates(const Runners& runners, std::vector<std::vector<Stretch>>& stretches);
  Seconds optimizer_budget() const { return options_.budget_per_size / 4; }
  LayerProfile layer_result(int position) const;
  Context context() const;

  const ResolvedModel& model_;
  const ModelPart part_;
  const ProfileOptions& options_;
  Observer& observer_;
  const Environment& environment_;
  std::vector<Size> sizes_;
  std::vector<KernelChoice> kernels_;
  std::vector<OptimizerProfile> optimizers_;
  Context findings_;                               ///< what the timing says about the machine
  std::vector<MemoryAccount> accounts_;            ///< per device
  MemoryAccount host_memory_{available_memory()};  ///< where a GPU's samples are made
  std::vector<DeviceProbes> probes_;               ///< per device
  Runners runners_;                                ///< per device
  Runners parts_;                                  ///< per device, a part of the model each
  DeviceGang gang_;
};

}  // namespace pp::profile
