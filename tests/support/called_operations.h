// LibTorch's operations that the calling thread calls, while an object of this lives.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pp::test {

/// One at a time in a thread.
class CalledOperations {
 public:
  CalledOperations() {
    names().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}));
  }
  ~CalledOperations() { at::removeCallback(handle_); }
  CalledOperations(const CalledOperations&) = delete;
  CalledOperations& operator=(const CalledOperations&) = delete;

  /// `aten::add_`, in the order of the calls so far. May be added to.
  static std::vector<std::string>& names() {
    thread_local std::vector<std::string> names;
    return names;
  }
  static std::ptrdiff_t count(std::string_view name) { return std::ranges::count(names(), name); }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& called) {
    names().emplace_back(called.name());
    return nullptr;
  }

  at::CallbackHandle handle_{};
};

}  // namespace pp::test
