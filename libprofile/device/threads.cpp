#include "libprofile/device/threads.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>

namespace pp::profile {

void enter_worker_thread(int threads) {
  at::set_num_threads(threads);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  c10::GradMode::set_enabled(true);
}

}  // namespace pp::profile
