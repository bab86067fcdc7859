// What pp-profile and pp-run call of the half that needs LibTorch. That half is a module
// (lib/pp/pp-computing.so), loaded by the first of these calls, so that commands which compute nothing start
// without it. The tools include the functions' own headers; delayed.cpp hands the calls on.
#pragma once

#include "libprofile/device/process.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/segment_plan.h"
#include "librun/infer.h"
#include "librun/links/local_links.h"
#include "librun/links/rank_links.h"
#include "librun/links/sum_overlap.h"
#include "librun/overhead.h"
#include "librun/run.h"
#include "librun/values.h"
#include "librun/warm.h"

namespace pp {

struct Computing {
  decltype(&profile::prepare_process) prepare_process;
  decltype(&profile::machine_devices) machine_devices;
  decltype(&profile::seen_devices) seen_devices;
  decltype(&profile::described) described;
  decltype(&profile::measurement_context) measurement_context;
  Profile (*profile_model)(const ModelGraph&, const profile::ProfileOptions&, profile::Observer&);
  decltype(&model::check_bindable) check_bindable;
  decltype(&model::detail::rethrow_as_error) rethrow_as_error;
  decltype(&run::measure_overhead) measure_overhead;
  decltype(&run::measure_links) measure_links;
  decltype(&run::measure_cuda_links) measure_cuda_links;
  decltype(&run::make_gpu_medium) make_gpu_medium;
  decltype(&run::measure_sum_overlap) measure_sum_overlap;
  decltype(&run::programs) programs;
  decltype(&run::warm) warm;
  decltype(&run::warm_together) warm_together;
  decltype(&run::run) run;
  decltype(&run::run_together) run_together;
  decltype(&run::refuse_together) refuse_together;
  decltype(&run::runs_left_behind) runs_left_behind;
  decltype(&run::infer) infer;
  decltype(&run::open_values) open_values;
};

}  // namespace pp

/// The one symbol of the module that is looked up by its name.
extern "C" const pp::Computing* pp_computing();
