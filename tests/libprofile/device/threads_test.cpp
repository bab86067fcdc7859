#include "libprofile/device/threads.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <thread>

#include "tests/support/torch_test.h"

using pp::profile::enter_worker_thread;

TEST_SUITE("libprofile/device/threads") {
  TEST_CASE("the settings hold in the calling thread only") {
    const int before = at::get_num_threads();
    const bool engine_threads_before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    int inside = 0;
    bool engine_threads = true;
    std::thread([&] {
      enter_worker_thread(1);
      inside = at::get_num_threads();
      engine_threads = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    }).join();
    CHECK(inside == 1);
    CHECK_FALSE(engine_threads);
    CHECK(at::get_num_threads() == before);
    CHECK(c10::AutogradState::get_tls_state().get_multithreading_enabled() == engine_threads_before);
  }
}
