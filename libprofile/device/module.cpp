#include "libprofile/device/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "libprofile/core/error.h"

namespace pp::profile {

void* module_symbol(const std::string& file, const char* symbol) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = program.parent_path().parent_path() / "lib" / file;
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = module != nullptr ? dlsym(module, symbol) : nullptr;
  if (found != nullptr) return found;
  throw Error(ErrorKind::device, path + " cannot be loaded: " + dlerror() +
                                     "; run scripts/setup, which installs LibTorch, and build again");
}

}  // namespace pp::profile
