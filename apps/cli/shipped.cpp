#include "apps/cli/shipped.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/nearest_name.h"

namespace pp::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string shipped_document(const std::string& typed, const std::string& folder, const std::string& option) {
  std::error_code none;
  if (typed.empty() || typed == "-" || typed.find_first_of("/.") != typed.npos || fs::exists(typed, none))
    return typed;
  const fs::path place = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/pp" / folder;
  const std::vector<std::string> names = names_in(place);
  const auto found = std::ranges::find(names, in_small_letters(typed));
  if (found != names.end()) return place / (*found + ".json");
  if (names.empty()) throw Error(ErrorKind::usage, option + ": there is no file " + typed);
  throw Error(ErrorKind::usage, option + ": " + unknown_name(typed, names) + ", or a file");
}

}  // namespace pp::cli
