#include "libplan/explorer/explorer.h"

#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/model/model_graph.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace pp::plan::explorer_test {
namespace {

const std::string kEvil = "</script><img src=x onerror=alert(1)>&\"'<!--";

Plan sample() {
  const Json json = parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8]}],
    "targets": [{"name": "y", "dtype": "int64", "shape": []}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 4}}],
    "outputs": ["a"], "loss": {"op": "cross_entropy", "inputs": ["a", "y"]}})");
  return make_plan({.model = model_from_json(json)});
}

SimulationResult one_forward() {
  SimulationResult result;
  result.makespan = Seconds(1);
  result.busy = {Seconds(1)};
  result.ops = {{WorkerId{0}, {OpKind::forward, StageId{0}, 0}, Seconds(0), Seconds(1)}};
  return result;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// What the page's script reads.
Json data_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from));
}

TEST_SUITE("libplan/explorer/explorer") {
  TEST_CASE("the page holds its data, and nothing that loads") {
    const Plan plan = sample();
    const SimulationResult result = one_forward();
    const ExplorerPlan given{"plan.json", "small: 1f1b", &plan, {{"step", "1 s", "promised"}}};
    const ExplorerTimeline timeline{"simulated", 0, &result, {}, Seconds(1), 0.25};
    const Json data = explorer_data({&given, 1}, {&timeline, 1});
    CHECK(data["kinds"][0] == Json({"F", "forward", "#56b4e9"}));
    CHECK(data["parts"][0][0] == "weights");
    CHECK(data["plans"][0]["tiles"] == Json({{"step", "1 s", "promised"}}));
    CHECK(data["timelines"][0]["name"] == "simulated");
    CHECK(data["timelines"][0]["bubble"] == 0.25);
    std::string page = explorer_page("small", data);
    CHECK(page.starts_with("<!DOCTYPE html>"));
    CHECK(data_in(page) == data);
    CHECK(page.find('@') == page.find("@media"));            // every mark is filled in
    const std::string names = "http://www.w3.org/2000/svg";  // a name, not an address
    for (std::size_t at; (at = page.find(names)) != std::string::npos;) page.erase(at, names.size());
    for (const char* loads : {"http:", "https:", " src=", " href=", "@import", "url(", "fetch(", "innerHTML"})
      CHECK(count_of(page, loads) == 0);
  }

  TEST_CASE("names cannot end the script or begin an element") {
    Plan plan = sample();
    plan.stages[0].layers = {kEvil};
    plan.devices[0].node = kEvil;
    plan.alternatives = {{kEvil, kEvil, kEvil, 1, Seconds(1), Bytes(1), kEvil, kEvil}};
    const ExplorerPlan given{kEvil, kEvil, &plan};
    const Json data = explorer_data({&given, 1}, {});
    const ExplorerSection section{kEvil, "<p>markup</p>"};
    const std::string page = explorer_page(kEvil, data, {&section, 1});
    CHECK(data_in(page) == data);
    CHECK(count_of(page, "<img") == 0);
    CHECK(count_of(page, "<!--") == 0);
    CHECK(count_of(page, "</script") == 2);  // of the data and of the page's script
    CHECK(count_of(page, "data-title=\"&lt;/script&gt;&lt;img") == 1);
    CHECK(count_of(page, "<p>markup</p>") == 1);
  }
}

}  // namespace
}  // namespace pp::plan::explorer_test
