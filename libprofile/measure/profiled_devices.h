// The devices of one profile: a thread each, what it may hold, and what it runs of the model: all of it as
// replicas do, or a part as in a pipeline, whose stages hold the model once between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/measure/device_gang.h"
#include "libprofile/measure/model_runner.h"
#include "libprofile/measure/profile_run.h"

namespace pp::profile {

/// Neighbouring layers of about equal cost, each part with one layer at least; the loss goes with the last.
/// `costs`: per layer, as many as the model has, at least `count`.
std::vector<ModelPart> model_parts(const ResolvedModel& model, int count, std::span<const double> costs);

/// Whether each of `devices` runs a part of its own as well: not for one device, for fewer layers than devices,
/// nor where only `part` of the model is measured.
bool are_parts_measured(const ResolvedModel& model, const ModelPart& part, int devices);

/// Seconds of a pass per layer, the shortest of the recorded ones; the loss counts to the last layer.
std::vector<double> layer_costs(const VisitTimes& times, int layers);

/// One visit of the whole model from those of its parts, which ran equally many passes at the same time.
VisitTimes joined(const std::vector<VisitTimes>& parts);

/// What is measured, how, and where. All that it refers to outlives the measurement; `options` are checked.
struct Subject {
  const ResolvedModel& model;
  ModelPart part;
  const ProfileOptions& options;
  Observer& observer;
  const Environment& environment;
};

class ProfiledDevices {
 public:
  using Runners = std::vector<std::unique_ptr<ModelRunner>>;

  /// Starts the devices and draws the weights of the subject's part on each. Throws pp::Error (device) when
  /// these alone do not fit.
  ProfiledDevices(const Subject& subject, std::vector<std::int64_t> micro_batch_sizes);

  /// `work` on every device at once, on its own thread, its allocations charged to the device's account. The
  /// runner is the one of the subject's part.
  void run(const std::function<void(int device, ModelRunner& runner)>& work);

  /// Runners of a part of the model for each device, beside the others, of which `parts()` has none before.
  /// `prepare` follows on each device's thread. Throws model::OutOfMemory; there are none then.
  void add_parts(const std::vector<ModelPart>& parts, const std::function<void(ModelRunner& part)>& prepare);
  void drop_parts() { parts_.clear(); }

  /// What passes take from here on.
  void use(const std::vector<KernelChoice>& kernels);

  const Runners& whole() const { return whole_; }
  const Runners& parts() const { return parts_; }
  DeviceProbes& probes(int device) { return probes_[static_cast<std::size_t>(device)]; }
  /// The first device's, which is every device's.
  const MemoryAccount& account() const { return accounts_.front(); }
  /// For `bytes` more on each.
  bool have_room(Bytes bytes) const;
  int count() const { return subject_.options.devices.count; }
  bool is_cuda() const { return subject_.options.devices.kind == DeviceKind::cuda; }

 private:
  at::Device device() const;
  /// Of the device's thread, once.
  void enter(int device);
  std::unique_ptr<ModelRunner> make_runner(const ModelPart& part, std::size_t device);

  const Subject& subject_;
  std::vector<std::int64_t> micro_batch_sizes_;
  std::vector<MemoryAccount> accounts_;            ///< per device
  MemoryAccount host_memory_{available_memory()};  ///< where a GPU's samples are made
  std::vector<DeviceProbes> probes_;               ///< per device
  std::shared_ptr<const model::Kernels> kernels_;
  Runners whole_, parts_;  ///< per device
  DeviceGang gang_;
};

}  // namespace pp::profile
