#include "libprofile/device/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "libprofile/core/error.h"
#include "libprofile/device/libtorch_place.h"

namespace pp::profile {
namespace {

struct Opened {
  void* module = nullptr;
  std::string problem{};
};

Opened open(const std::string& path) {
  if (void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {module};
  return {nullptr, dlerror()};
}

/// `libc10.so: cannot open shared object file: ..`: it is not where the module was told to look.
bool lacks_libtorch(const std::string& problem) {
  return problem.starts_with("libc10") || problem.starts_with("libtorch");
}

}  // namespace

void* module_symbol(const std::string& file, const char* symbol, LibTorchPart part) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = program.parent_path().parent_path() / "lib/pp" / file;
  load_named_libtorch(part);
  Opened opened = open(path);
  if (lacks_libtorch(opened.problem) && load_found_libtorch(part)) opened = open(path);
  if (opened.module != nullptr) {
    if (void* const found = dlsym(opened.module, symbol)) return found;
    opened.problem = dlerror();
  }
  throw Error(ErrorKind::device, path + " cannot be loaded: " + opened.problem + "; " + libtorch_remedy());
}

}  // namespace pp::profile
