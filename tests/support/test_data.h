// The documents in tests/data, and DAPPLE's profiles, which carry no licence notice and so are not there.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/profile.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"

namespace pp::test {

/// One of tests/data/peers: `vgg16`.
inline Profile peer_profile(const std::string& name) {
  return parse_profile(read_file(test_data("peers/" + name + ".json")));
}

/// The cases of one group of tests/data/schedules.
inline std::vector<nlohmann::json> golden(const std::string& group) {
  const std::filesystem::path path = test_data("schedules/golden.json");
  return nlohmann::json::parse(read_file(path)).at("groups").at(group);
}

/// The text of one of DAPPLE's profiles. Without the file the case, which is about nothing else, is skipped.
inline std::optional<std::string> dapple_text(const std::string& name) {
  const std::filesystem::path path = shared_data("peer-profiles/dapple/" + name + ".txt");
  if (std::filesystem::exists(path)) return read_file(path);
  skip(path.string() + " is not there");
  return std::nullopt;
}

}  // namespace pp::test
