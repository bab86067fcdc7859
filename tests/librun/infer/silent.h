#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "librun/infer.h"

namespace pp::test {

class SilentInference : public pp::run::InferObserver {
 public:
  void progress(const pp::run::InferProgress& progress) override { last = progress; }
  void warning(std::string_view text) override { warnings.emplace_back(text); }
  pp::run::InferProgress last;
  std::vector<std::string> warnings;
};

}  // namespace pp::test
