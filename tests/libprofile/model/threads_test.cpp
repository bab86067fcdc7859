#include "libprofile/model/threads.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <thread>
#include <vector>

#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

using namespace pp::model;
using namespace pp::model::test;

TEST_SUITE("libprofile/model/threads") {
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

  TEST_CASE("two threads that train at once get the bits of one") {
    const pp::ResolvedModel model = residual_model();
    const Job job{.model = &model};
    std::vector<Outcome> outcomes(3);
    const auto train = [&](Outcome& outcome) {
      enter_worker_thread(1);
      outcome = run_stages(job, cut_at(model, {4}));
    };
    std::thread(train, std::ref(outcomes[0])).join();
    std::thread a(train, std::ref(outcomes[1])), b(train, std::ref(outcomes[2]));
    a.join();
    b.join();
    CHECK(difference(outcomes[0], outcomes[1]) == "");
    CHECK(difference(outcomes[0], outcomes[2]) == "");
  }
}
