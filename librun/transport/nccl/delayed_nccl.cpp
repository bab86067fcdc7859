// make_group_key() and join_device_group() by the module that is loaded at the first call.
#include "libprofile/device/hand_over.h"
#include "libprofile/device/module.h"
#include "librun/transport/nccl/nccl_module.h"

namespace pp::run {
namespace {

const NcclModule& nccl() {
  static const auto enter =
      reinterpret_cast<decltype(&pp_nccl_module)>(profile::module_symbol("pp-nccl.so", "pp_nccl_module"));
  return *enter(profile::keep_for_stream);
}

}  // namespace

std::string make_group_key() { return nccl().make_key(); }

std::unique_ptr<DeviceGroup> join_device_group(const std::string& key, int me, int size,
                                               const at::Device& device) {
  return nccl().join_group(key, me, size, device);
}

}  // namespace pp::run
