#include "libprofile/model/determinism.h"

#include <ATen/Context.h>

namespace pp::model::detail {
namespace {

std::shared_mutex setting;

void set_warnings_only(bool only) { at::globalContext().setDeterministicAlgorithms(true, only); }

}  // namespace

Determinism::Determinism(bool required) {
  if (!at::globalContext().deterministicAlgorithms()) return;
  if (required) {
    required_ = std::shared_lock(setting);
    return;
  }
  alone_ = std::unique_lock(setting);
  set_warnings_only(true);
}

Determinism::~Determinism() {
  if (alone_) set_warnings_only(false);
}

}  // namespace pp::model::detail
