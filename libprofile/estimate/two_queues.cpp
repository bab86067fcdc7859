#include "libprofile/estimate/two_queues.h"

#include <algorithm>
#include <cmath>

namespace pp::profile {
namespace {

Seconds whole_picoseconds(double seconds) { return Seconds(std::round(seconds * 1e12) / 1e12); }

class Pass {
 public:
  Pass(const PassRates& rates, Seconds launch) : rates_(rates), launch_(launch.count()) {
    for (const TypeRates& type : rates.device.types)
      if (type.dtype == RunType(DType::float32)) full_ = &type;
  }

  /// Seconds that the works add to the pass.
  double run(const std::vector<Work>& works) {
    double added = 0;
    for (const Work& work : works) {
      const TypeRates& rates = work.narrow                     ? rates_.narrow
                               : work.full && full_ != nullptr ? *full_
                                                               : rates_.rates;
      launched_ += work.host.count();
      added += enqueue(work.kernels, time_of(work, rates_.device, rates, rates_.trainer).count());
    }
    return added;
  }

  double run(const Reductions& reductions) {
    if (reductions.calls == 0) return 0;
    const double steps = 2.0 * (rates_.tensor_degree - 1);
    const double time = steps * reductions.calls * rates_.tensor_link.latency.count() +
                        steps / rates_.tensor_degree * occupancy(reductions.bytes, rates_.tensor_link);
    return enqueue(reductions.calls, (1 - rates_.trainer.hidden_tensor) * time);
  }

  double run(const Gathers& gathers) {
    if (gathers.calls == 0) return 0;
    const double time = transfer_time(gathers.bytes, gathers.calls, rates_.context_link);
    return enqueue(gathers.calls, (1 - rates_.trainer.hidden_context) * time);
  }
  double run(const Exchanges& exchanges) {
    if (exchanges.calls == 0) return 0;
    const double away = transfer_time(exchanges.bytes, exchanges.calls, rates_.expert_link);
    const double near = transfer_time(exchanges.inside, exchanges.calls, rates_.near_link);
    return enqueue(exchanges.calls, (1 - rates_.trainer.experts.hidden) * std::max(away, near));
  }

 private:
  double enqueue(int kernels, double time) {
    launched_ += kernels * launch_;
    const double wait = std::max(0.0, launched_ - finished_);
    finished_ += wait + time;
    return wait + time;
  }

  const PassRates& rates_;
  const TypeRates* full_ = nullptr;  ///< of float32, where the device has them
  double launch_;
  double launched_ = 0, finished_ = 0;  ///< since the pass began, by the host and by the device
};

}  // namespace

std::vector<LayerTime> layer_times(const std::vector<LayerWork>& works, const PassRates& rates) {
  std::vector<LayerTime> times(works.size());
  Pass forward(rates, rates.trainer.launch), backward(rates, rates.trainer.backward_launch);
  for (std::size_t l = 0; l < works.size(); ++l) {
    const LayerWork& work = works[l];
    times[l].forward =
        whole_picoseconds(forward.run(work.forward) + forward.run(work.forward_gathers) +
                          forward.run(work.forward_exchanges) + forward.run(work.forward_reductions));
    times[l].input_gradient =
        whole_picoseconds(backward.run(work.input_gradient) + backward.run(work.backward_gathers) +
                          backward.run(work.backward_exchanges) + backward.run(work.backward_reductions));
    times[l].weight_gradient = whole_picoseconds(backward.run(work.weight_gradient));
  }
  return times;
}

}  // namespace pp::profile
