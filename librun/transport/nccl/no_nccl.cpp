#include "libprofile/core/error.h"
#include "librun/transport/device_group.h"

namespace pp::run {

std::string make_group_key() { throw Error(ErrorKind::internal, "this build has no NCCL"); }

std::unique_ptr<DeviceGroup> join_device_group(const std::string&, int, int, const at::Device&) {
  throw Error(ErrorKind::internal, "this build has no NCCL");
}

}  // namespace pp::run
