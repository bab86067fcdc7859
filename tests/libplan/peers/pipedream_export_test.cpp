#include "libplan/peers/pipedream_text.h"

#include "libplan/answer/make_plan.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/pipedream_export");

namespace pp::plan::pipedream_export_test {
namespace {

Profile diamond() {
  return test::make_profile({{{1.5, 3, 40, 16, 16}, {1, 2, 0, 8, 8}, {2, 2, 4, 8, 8}, {1, 1, 0, 4, 4}},
                             {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
                             {1}});
}

Plan plan_of(const Profile& profile) {
  PlanRequest request;
  request.mini_batch = 4;
  request.cuts = {2};
  request.replicas = {1, 1};
  return std::get<Plan>(make_plan(profile, test::make_cluster(2), request));
}

}  // namespace

TEST_CASE("a line per layer with its stage, then the edges") {
  const Profile profile = diamond();
  CHECK(export_pipedream(plan_of(profile), profile) ==
        "a -- opaque -- forward_compute_time=1.5, backward_compute_time=3.0, activation_size=16, "
        "parameter_size=40 -- "
        "stage_id=0\n"
        "b -- opaque -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8, "
        "parameter_size=0 -- "
        "stage_id=0\n"
        "c -- opaque -- forward_compute_time=2.0, backward_compute_time=2.0, activation_size=8, "
        "parameter_size=4 -- "
        "stage_id=1\n"
        "d -- opaque -- forward_compute_time=1.0, backward_compute_time=1.0, activation_size=4, "
        "parameter_size=0 -- "
        "stage_id=1\n"
        "\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n");
}

TEST_CASE("the importer reads it back") {
  const Profile profile = diamond();
  const Profile again = import_pipedream(export_pipedream(plan_of(profile), profile), "example", 1);
  REQUIRE(again.layers.size() == profile.layers.size());
  for (std::size_t i = 0; i < again.layers.size(); ++i) {
    CHECK(again.model.layers[i].name == profile.model.layers[i].name);
    CHECK(again.model.layers[i].inputs == profile.model.layers[i].inputs);
    CHECK(again.layers[i].parameters == profile.layers[i].parameters);
    CHECK(again.layers[i].points.front().output == profile.layers[i].points.front().output);
    CHECK(again.layers[i].points.front().forward.median == profile.layers[i].points.front().forward.median);
  }
}

TEST_CASE("a plan for another model is refused") {
  const Plan plan = plan_of(diamond());
  const Profile other = test::make_profile({{{1, 1}, {1, 1}}, {}, {1}});
  CHECK_THROWS_WITH(
      export_pipedream(plan, other),
      "the plan is for model example, which is not the profile's, example; give the profile that the "
      "plan was made from");
}

}  // namespace pp::plan::pipedream_export_test

TEST_SUITE_END();
