#include "librun/setup/make_setup.h"

#include "libprofile/device/process.h"
#include "libprofile/model/segment_plan.h"
#include "librun/setup/check_setup.h"

namespace pp::run {

Setup make_setup(const plan::Plan& plan, const RunOptions& options, const Placement& placement,
                 const std::optional<FoundCheckpoint>& found) {
  Setup setup = check_setup(plan, options, profile::machine_devices(), placement, found);
  model::check_bindable(setup.model);
  return setup;
}

}  // namespace pp::run
