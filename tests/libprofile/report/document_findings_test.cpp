#include "libprofile/report/document_findings.h"

#include "tests/libprofile/report/profiles.h"

#include "tests/support/doctest.h"

namespace pp::profile {

using Findings = std::vector<std::string>;

TEST_SUITE("libprofile/report/document_findings") {
  TEST_CASE("a complete profile of an idle machine is no finding") {
    Profile profile = test::make_profile({{"a", 1, 1}}, {1, 2});
    profile.context = {{"cores", "2"}, {"load_average", "1.99"}};
    CHECK(document_findings(profile).empty());
  }

  TEST_CASE("sizes out of memory, assumptions and a loaded machine are named") {
    Profile profile = test::make_profile({{"a", 1, 1}, {"b", 1, 1}}, {1, 2, 4});
    profile.layers[1].points[1].out_of_memory = true;
    profile.layers[0].points[2].out_of_memory = profile.layers[1].points[2].out_of_memory = true;
    profile.estimated = {"input_gradient_s", "batch_size"};
    profile.context = {{"cores", "2"}, {"load_average", "2.50"}};
    CHECK(
        document_findings(profile) ==
        Findings{
            "out of memory at micro-batch sizes [2, 4]: plans cannot use them; profile on a device with more "
            "memory for these",
            "assumed, not measured: input_gradient_s, batch_size; profile the model itself for plans that can "
            "be relied on",
            "the load average was 2.50 on 2 cores when this was measured: times may be too long; measure again "
            "on an idle machine"});
  }

  TEST_CASE("the load is the machine's, and so are the cores it counts") {
    Profile profile = test::make_profile({{"a", 1, 1}}, {1});
    profile.context = {{"cores", "2"}, {"machine_cores", "64"}, {"load_average", "40.00"}};
    CHECK(document_findings(profile).empty());
    profile.context["load_average"] = "64.10";
    CHECK(document_findings(profile).size() == 1);
  }

  TEST_CASE("of merged profiles the one under the highest load counts") {
    Profile profile = test::make_profile({{"a", 1, 1}}, {1});
    profile.context = {{"cores", "2"}, {"load_average", "0.10; 9.00; 1.00"}};
    CHECK(
        document_findings(profile) ==
        Findings{"the load average was 9.00 on 2 cores when this was measured: times may be too long; measure "
                 "again on an idle machine"});
    profile.context = {{"cores", "4; 2"}, {"load_average", "3"}};
    CHECK(document_findings(profile).size() == 1);
    profile.context["load_average"] = "1.00; 2.00";
    CHECK(document_findings(profile).empty());
  }

  TEST_CASE("a context that says nothing, or no number, is no finding") {
    Profile profile = test::make_profile({{"a", 1, 1}}, {1});
    profile.context = {{"cores", "1; two"}, {"load_average", "9"}};
    CHECK(document_findings(profile).empty());
    profile.context = {{"cores", "1"}, {"load_average", "9;"}};
    CHECK(document_findings(profile).empty());
    profile.context = {{"load_average", "9"}};
    CHECK(document_findings(profile).empty());
  }
}

}  // namespace pp::profile
