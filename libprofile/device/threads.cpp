#include "libprofile/device/threads.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <set>
#include <string>

namespace pp::profile {

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
