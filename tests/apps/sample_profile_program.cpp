// sample-profile MS...: prints the profile of a chain of linear and relu layers (sample_profile.h), for
// transcripts.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "libprofile/core/profile.h"
#include "tests/apps/sample_profile.h"

int main(int argc, char** argv) {
  std::vector<double> forward_ms;
  for (int i = 1; i < argc; ++i) forward_ms.push_back(std::atof(argv[i]));
  const std::string text = pp::dump_json(pp::to_json(pp::test::sample_profile(forward_ms)));
  std::fputs(text.c_str(), stdout);
}
