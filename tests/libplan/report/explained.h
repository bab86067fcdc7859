// Plans with their explanations, and what these say.
#pragma once

#include <string>
#include <variant>

#include "libplan/answer/make_plan.h"
#include "libplan/report/explain.h"
#include "tests/support/doctest.h"

namespace pp::plan::test {

inline Explanation explained(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  const auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return explain(std::get<Plan>(result), profile, cluster, request);
}

inline void check_says(const Explanation& why, const std::string& sentence) {
  const std::string text = to_text(why);
  CAPTURE(text);
  CAPTURE(sentence);
  CHECK(text.find(sentence) != std::string::npos);
}

inline void check_silent(const Explanation& why, const std::string& word) {
  const std::string text = to_text(why);
  CAPTURE(text);
  CHECK(text.find(word) == std::string::npos);
}

}  // namespace pp::plan::test
