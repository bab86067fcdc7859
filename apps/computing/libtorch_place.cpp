#include "apps/computing/libtorch_place.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "libprofile/core/error.h"
#include "libprofile/device/module.h"

namespace pp {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool has_libtorch(const fs::path& torch) {
  std::error_code none;
  return fs::exists(torch / "lib" / "libtorch_cpu.so", none);
}

/// Modules ask for libraries by name and get those that are loaded already.
void load(const fs::path& torch) {
  for (const char* library : {"libc10.so", "libtorch_cpu.so"}) profile::load_library(torch / "lib" / library);
}

fs::path cached() {
  fs::path cache = environment("PP_CACHE");
  if (cache.empty()) {
    const std::string xdg = environment("XDG_CACHE_HOME");
    cache = (xdg.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(xdg)) / "pp";
  }
  return cache / "torch-2.11.0" / "torch";
}

/// The python3 of the environment that the program is installed in, else the one that is called by its name.
std::string python() {
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "python3";
  std::error_code none;
  const bool usable = fs::exists(beside, none) && beside.string().find('\'') == std::string::npos;
  return usable ? "'" + beside.string() + "'" : "python3";
}

/// The folder of its torch, which is not imported for that.
fs::path of_python() {
  const std::string find = python() +
                           " -c 'import importlib.util as u; s = u.find_spec(\"torch\"); "
                           "print(s.submodule_search_locations[0] if s else \"\")' 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(find.c_str(), "r"), pclose);
  std::array<char, 4096> line{};
  if (!pipe || std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) == nullptr) return {};
  std::string path = line.data();
  path.erase(path.find_last_not_of('\n') + 1);
  return path;
}

}  // namespace

void load_named_libtorch() {
  const std::string named = environment("PP_LIBTORCH");
  if (named.empty()) return;
  if (!has_libtorch(named))
    throw Error(ErrorKind::device,
                "PP_LIBTORCH: " + named + " has no lib/libtorch_cpu.so; " + profile::libtorch_remedy());
  load(named);
}

bool load_found_libtorch() {
  for (const auto& place : {cached, of_python}) {
    const fs::path torch = place();
    if (torch.empty() || !has_libtorch(torch)) continue;
    load(torch);
    return true;
  }
  return false;
}

}  // namespace pp
