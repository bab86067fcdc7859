// Passes of several threads at once.
#include <functional>
#include <thread>
#include <vector>

#include "libprofile/device/process.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

namespace threads_test {

using namespace pp::model;
using namespace pp::model::test;

TEST_SUITE("libprofile/model/threads") {
  TEST_CASE("two threads that train at once get the bits of one") {
    const pp::ResolvedModel model = residual_model();
    const Job job{.model = &model};
    std::vector<Outcome> outcomes(3);
    const auto train = [&](Outcome& outcome) {
      pp::profile::enter_worker_thread(1);
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

}  // namespace threads_test
