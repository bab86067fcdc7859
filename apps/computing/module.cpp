#include "apps/computing/computing.h"

const pp::Computing* pp_computing() {
  static constexpr pp::Computing kModule{
      .prepare_process = pp::profile::prepare_process,
      .machine_devices = pp::profile::machine_devices,
      .seen_devices = pp::profile::seen_devices,
      .described = pp::profile::described,
      .measurement_context = pp::profile::measurement_context,
      .profile_model = pp::profile::profile_model,
      .check_bindable = pp::model::check_bindable,
      .rethrow_as_error = pp::model::detail::rethrow_as_error,
      .measure_overhead = pp::run::measure_overhead,
      .measure_links = pp::run::measure_links,
      .measure_cuda_links = pp::run::measure_cuda_links,
      .make_gpu_medium = pp::run::make_gpu_medium,
      .measure_sum_overlap = pp::run::measure_sum_overlap,
      .programs = pp::run::programs,
      .warm = pp::run::warm,
      .warm_together = pp::run::warm_together,
      .run = pp::run::run,
      .run_together = pp::run::run_together,
      .refuse_together = pp::run::refuse_together,
      .runs_left_behind = pp::run::runs_left_behind,
      .infer = pp::run::infer,
      .open_values = pp::run::open_values,
  };
  return &kModule;
}
