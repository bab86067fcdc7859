// Where NCCL begins: nccl_group.cpp is a module (lib/pp-nccl.so) that is loaded for the first group of GPUs.
// Internal to delayed_nccl.cpp and the module.
#pragma once

#include "librun/transport/device_group.h"

namespace pp::run {

struct NcclModule {
  decltype(&make_group_key) make_key;
  decltype(&join_device_group) join_group;
};

}  // namespace pp::run

/// The one symbol of the module that is looked up by its name.
extern "C" const pp::run::NcclModule* pp_nccl_module();
