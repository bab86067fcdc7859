// The options of a request as entries of a plan's context: for readers, and for the next plan of a training.
#pragma once

#include "libplan/request/plan_request.h"
#include "libprofile/core/context.h"

namespace pp::plan {

/// Adds every option that shapes plans, but for those that a plan says elsewhere: mini-batch, optimizer,
/// precision, weight policy and programs. Options that are as they were leave no entry, but for schedule,
/// micro-batches and window, which say `auto`.
void add_options(Context& context, const PlanRequest& request);

/// Sets what the context says of options that hold for any number of devices: no stages, cuts, replicas, nor
/// windows by stage. Throws pp::Error (data) that names an entry which says no value of its option.
void read_options(PlanRequest& request, const Context& context);

}  // namespace pp::plan
