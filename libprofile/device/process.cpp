#include "libprofile/device/process.h"

#include <ATen/Version.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>

#include "libprofile/device/build.h"
#include "libprofile/device/cores.h"
#include "libprofile/device/cuda_device.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/saved_meter.h"

namespace pp::profile {
namespace {

/// What malloc holds stays with the process instead of being returned and faulted in again (tensors of some
/// size never get here: BlockCache). Every thread keeps an arena of its own: with one for all, workers wait for
/// each other's small blocks.
void keep_memory() {
  constexpr int kNever = 1 << 30;
  constexpr int kOldMaximum = 32 << 20;  // glibc before 2.36 refuses more
  if (mallopt(M_MMAP_THRESHOLD, kNever) != 1) mallopt(M_MMAP_THRESHOLD, kOldMaximum);
  mallopt(M_TRIM_THRESHOLD, kNever);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

void prepare_process() {
  keep_memory();
  install_memory_meter();
  install_saved_meter();
}

Context measurement_context() {
  Context context{{"cores", std::to_string(usable_cores().size())},
                  {"cpu", cpu_name()},
                  {"cpu_capability", at::get_cpu_capability()},
                  {"host", host_name()},
                  {"libtorch", libtorch_version()},
                  {"utc_time", utc_time()}};
  if (const auto load = machine_load()) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.2f", load->average);
    context["load_average"] = text.data();
    context["machine_cores"] = std::to_string(load->cores);
  }
  return context;
}

std::string seen_devices(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return list_cores(usable_cores());
  std::string all;
  for (int index = 0; index < cuda_device_count(); ++index) all += cuda_identity(index) + " ";
  return all;
}

ProfiledDevice described(const DeviceSet& devices) {
  const bool cuda = devices.kind == DeviceKind::cuda;
  return {.kind = devices.kind,
          .name = cuda ? cuda_device_name(devices.first) : cpu_name(),
          .cores_per_device = devices.cores,
          .devices_busy = devices.count,
          .memory = {}};
}

MachineDevices machine_devices() { return {usable_cores(), cuda_device_count, why_no_cuda()}; }

}  // namespace pp::profile
