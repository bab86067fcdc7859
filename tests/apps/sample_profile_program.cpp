// sample-profile [--name NAME] [--sizes N,N] MS...: prints the profile of a chain of linear and relu layers
// (sample_profile.h), for transcripts; of these of its micro-batch sizes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "tests/apps/sample_profile.h"

int main(int argc, char** argv) {
  std::vector<double> forward_ms;
  std::vector<std::int64_t> sizes{1, 2, 4, 8, 16};
  std::string name = "sample";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--name" && i + 1 < argc) {
      name = argv[++i];
    } else if (argument == "--sizes" && i + 1 < argc) {
      sizes.clear();
      std::istringstream items(argv[++i]);
      for (std::string item; std::getline(items, item, ',');) sizes.push_back(std::atoi(item.c_str()));
    } else {
      forward_ms.push_back(std::atof(argv[i]));
    }
  }
  pp::Profile profile = pp::test::sample_profile(forward_ms);
  profile.model.name = name;
  profile.model_hash = pp::model_hash(profile.model);
  const auto left_out = [&](std::int64_t size) { return std::ranges::count(sizes, size) == 0; };
  std::erase_if(profile.micro_batch_sizes, left_out);
  for (pp::LayerProfile& layer : profile.layers)
    std::erase_if(layer.points, [&](const pp::LayerPoint& point) { return left_out(point.micro_batch_size); });
  std::fputs(pp::dump_json(pp::to_json(profile)).c_str(), stdout);
}
