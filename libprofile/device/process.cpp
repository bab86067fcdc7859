#include "libprofile/device/process.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <set>
#include <string>

#include "libprofile/device/build.h"
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

namespace {

/// oneMKL chooses the kernel of each of its vector functions in that function's first call; of calls that run
/// together then, one may get a kernel of low accuracy (4e-5 for tanh: pytorch/pytorch#188792, oneMKL 2024.2).
/// So one thread calls each of them, those that ATen takes from oneMKL (ATen/cpu/vml.h), before any other
/// works. 1.4 ms, once in a process.
bool call_vector_functions_once() {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor half = at::full({1}, 0.5, type);
    for (const auto function :
         {at::acos, at::asin, at::atan, at::cos, at::erf, at::erfc, at::erfinv, at::exp, at::log, at::log10,
          at::log2, at::sin, at::sqrt, at::tan, at::tanh, at::trunc}) {
      function(half);
    }
  }
  return true;
}

}  // namespace

void warn_once() {
  class Handler final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override {
      const std::lock_guard lock(mutex_);
      if (said_.insert(warning.msg()).second) c10::WarningHandler::process(warning);
    }

   private:
    std::mutex mutex_;
    std::set<std::string> said_;
  };
  static Handler handler;
  c10::WarningUtils::set_warning_handler(&handler);
}

void enter_worker_thread(int threads) {
  warn_once();
  at::set_num_threads(threads);
  [[maybe_unused]] static const bool called = call_vector_functions_once();  // other threads wait here
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  c10::GradMode::set_enabled(true);
}

}  // namespace pp::profile
