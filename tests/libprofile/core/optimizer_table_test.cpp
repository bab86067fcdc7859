#include "libprofile/core/optimizer_table.h"

#include "tests/support/doctest.h"

namespace optimizer_table_test {

using namespace pp;
using enum OptimizerName;

TEST_SUITE("libprofile/core/optimizer_table") {
  TEST_CASE("defaults are those of torch.optim, but for sgd's momentum") {
    CHECK(settings_of(sgd, {}) == OptimizerSettings{{"momentum", 0.9}, {"nesterov", 0}});
    CHECK(settings_of(adamw, {}) == OptimizerSettings{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}});
    CHECK(settings_of(rmsprop, {}) == OptimizerSettings{{"alpha", 0.99}, {"epsilon", 1e-8}, {"momentum", 0}});
    CHECK(settings_of(adagrad, {}) == OptimizerSettings{{"epsilon", 1e-10}, {"lr_decay", 0}});
    CHECK(settings_of(adam, {{"beta1", 0.8}, {"momentum", {}}, {"nesterov", 0}}) ==
          OptimizerSettings{{"beta1", 0.8}, {"beta2", 0.999}, {"epsilon", 1e-8}});
  }

  TEST_CASE("a direction is a momentum, or Adam's mean") {
    CHECK(has_direction(sgd, {}));
    CHECK_FALSE(has_direction(sgd, {{"momentum", 0}}));
    CHECK(has_direction(adam, {}));
    CHECK_FALSE(has_direction(rmsprop, {}));
    CHECK(has_direction(rmsprop, {{"momentum", 0.5}}));
    CHECK_FALSE(has_direction(adagrad, {}));
  }

  TEST_CASE("help names all that have a setting, by default") {
    CHECK(option_of("lr_decay") == "--lr-decay");
    CHECK(help_of("momentum") == "sgd: 0.9; rmsprop: 0 unless given");
    CHECK(help_of("epsilon") == "adam, adamw, rmsprop: 1e-08; adagrad: 1e-10 unless given");
    CHECK(help_of("nesterov") == "sgd: Nesterov's momentum");
    CHECK(help_of("alpha") == "rmsprop: of the mean of squares, 0.99 unless given");
  }
}

}  // namespace optimizer_table_test
