// A profile whose progress nobody watches.
#pragma once

#include <string_view>

#include "libprofile/measure/profiler.h"

namespace pp::test {

struct SilentProfiling final : profile::Observer {
  void progress(std::string_view, double, Seconds) override {}
  void warning(std::string_view) override {}
};

}  // namespace pp::test
