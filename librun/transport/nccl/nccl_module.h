// Where NCCL begins: nccl_group.cpp is a module (lib/pp/pp-nccl.so) that is loaded for the first group of GPUs.
// Internal to delayed_nccl.cpp and the module.
#pragma once

#include "librun/transport/device_group.h"

namespace pp::run {

using KeepForStream = void (*)(const at::Tensor& tensor);

struct NcclModule {
  decltype(&make_group_key) make_key;
  decltype(&join_device_group) join_group;
};

}  // namespace pp::run

/// The one symbol of the module that is looked up by its name. `keep_for_stream`: that of hand_over.h.
extern "C" const pp::run::NcclModule* pp_nccl_module(pp::run::KeepForStream keep_for_stream);
