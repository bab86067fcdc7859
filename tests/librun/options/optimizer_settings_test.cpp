#include "librun/options/optimizer_settings.h"

#include "librun/options/optimizer.h"
#include "tests/support/torch_test.h"

namespace optimizer_settings_test {

using namespace pp;

TEST_SUITE("librun/options/optimizer_settings") {
  TEST_CASE("what an optimizer keeps is told without making it") {
    for (const auto& [name, text] : EnumNames<plan::OptimizerName>::table) {
      for (const double momentum : {0.0, 0.5}) {
        run::RunOptions options;
        if (name == plan::OptimizerName::sgd || name == plan::OptimizerName::rmsprop)
          options.momentum = momentum;
        const run::OptimizerState told = run::optimizer_state(name, options);
        const auto made = run::make_optimizer(name, options);
        CAPTURE(text);
        CAPTURE(momentum);
        CHECK(told.slots == made->slot_names());
        CHECK(told.ratio == made->state_ratio());
        CHECK(told.has_direction == made->has_direction());
      }
    }
  }
}

}  // namespace optimizer_settings_test
