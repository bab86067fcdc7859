// The layer profiler: runs the model layer by layer in place, as the executor runs it, at several micro-batch
// sizes, with every device busy, and returns the Profile. Plain values only: apps include this header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/profile.h"
#include "libprofile/device/device_set.h"

namespace pp::profile {

/// `automatic`: 1, 2, 4, ... until a size does not fit, which is recorded, or takes too long to be sampled
/// within the budget. At most kLargestAutomaticSize.
enum class SizeChoice { listed, automatic };
inline constexpr std::int64_t kLargestAutomaticSize = 1024;

/// What runs an operation that has several kernels on a CPU (core/kernel_choice.h). `measured`: the faster one
/// here, if it wins by 3 %. `mkl`: LibTorch's own choice. `onednn`: products by oneDNN, all of them.
enum class KernelPolicy { measured, mkl, onednn };

}  // namespace pp::profile

namespace pp {
template <>
struct EnumNames<profile::KernelPolicy> {
  static constexpr std::array table{std::pair{profile::KernelPolicy::measured, "measured"sv},
                                    std::pair{profile::KernelPolicy::mkl, "mkl"sv},
                                    std::pair{profile::KernelPolicy::onednn, "onednn"sv}};
};
}  // namespace pp

namespace pp::profile {

struct ProfileOptions {
  /// `isolated`: each layer alone on random inputs, for models that do not fit; no cross-check then, and what a
  /// layer and its reader both keep counts twice.
  ProfileMode mode = ProfileMode::in_place;
  SizeChoice size_choice = SizeChoice::listed;
  std::vector<std::int64_t> micro_batch_sizes{1, 2, 4, 8, 16};  ///< not read for `automatic`
  DeviceSet devices{};
  DType dtype = DType::float32;
  MemoryFormat memory_format = MemoryFormat::contiguous;
  std::optional<Autocast> autocast{};  ///< forwards run under LibTorch's autocast; of float32, in place
  KernelPolicy kernels = KernelPolicy::measured;
  /// Stop sampling a size when the half-width of the 95 % interval of the median, by the medians of at least
  /// eight visits in `min_time` of each kind of pass, is below this share of it, ...
  double precision = 0.02;
  /// ... or after this much time per micro-batch size, warm-up excluded. Seven kinds need 7 s and more.
  Seconds budget_per_size{12.0};
  Seconds min_time{1.0};
  std::uint64_t seed = 1;
};
/// A rough profile in seconds, for demos and first tries: 5 % precision, at most 0.6 s per size.
inline ProfileOptions quick(ProfileOptions options) {
  options.precision = 0.05;
  options.budget_per_size = Seconds(0.6);
  options.min_time = Seconds(0.1);
  return options;
}

/// Progress and findings; called on the thread that called profile_model(), never inside a timed region.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void progress(std::string_view phase, double done, Seconds remaining) = 0;  ///< done in [0, 1]
  virtual void warning(std::string_view text) = 0;                                    ///< with its remedy
};

/// Throws pp::Error: (data) for a model that cannot run, (device) for a device that does not exist.
Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer);

}  // namespace pp::profile
