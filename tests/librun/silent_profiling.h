// A profile whose progress nobody watches.
#pragma once

#include <string_view>

#include "libprofile/measure/profiler.h"

namespace test {

struct SilentProfiling final : pp::profile::Observer {
  void progress(std::string_view, double, pp::Seconds) override {}
  void warning(std::string_view) override {}
};

}  // namespace test
