#include "libprofile/device/module.h"

#include <dlfcn.h>
#include <link.h>

#include "libprofile/core/error.h"

namespace pp::profile {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path) {
  throw Error(ErrorKind::device, path.string() + " cannot be loaded: " + dlerror() + "; " + libtorch_remedy());
}

/// The folder of the loaded LibTorch; empty: none is.
fs::path libtorch_folder() {
  void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  return fs::path(map->l_name).parent_path();
}

}  // namespace

void* module_symbol(const std::string& file, const char* symbol) {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path path = program.parent_path().parent_path() / "lib/pp" / file;
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = module != nullptr ? dlsym(module, symbol) : nullptr;
  if (found == nullptr) fail(path);
  return found;
}

void load_library(const fs::path& path) {
  if (dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) fail(path);
}

void load_cuda_libraries() {
  const fs::path path = libtorch_folder() / "libtorch_cuda.so";
  std::error_code none;
  if (path.has_parent_path() && fs::exists(path, none)) load_library(path);
}

std::string libtorch_remedy() {
  return "install LibTorch 2.11 by scripts/setup or by pip install torch==2.11.0, or set PP_LIBTORCH to the "
         "torch folder of an installed wheel";
}

}  // namespace pp::profile
