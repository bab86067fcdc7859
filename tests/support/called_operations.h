// LibTorch's operations that are called while an object of this lives. That another kernel was really taken is
// seen by them, not by the bits, which may be the same on some processor.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pp::test {

/// Those of the calling thread. One at a time in a thread.
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

/// Calls of one operation, on any thread. One at a time.
class TorchCalls {
 public:
  /// Such as `mkldnn::_linear_pointwise`.
  explicit TorchCalls(std::string function) {
    name = std::move(function);
    calls = 0;
    handle_ =
        at::addGlobalCallback(at::RecordFunctionCallback(&TorchCalls::see).scopes({at::RecordScope::FUNCTION}));
  }
  ~TorchCalls() { at::removeCallback(handle_); }
  TorchCalls(const TorchCalls&) = delete;
  TorchCalls& operator=(const TorchCalls&) = delete;

  /// So far.
  static int count() { return calls; }

 private:
  static std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& function) {
    if (std::string_view(function.name()) == name) ++calls;
    return nullptr;
  }

  static inline std::string name;
  static inline std::atomic<int> calls = 0;
  at::CallbackHandle handle_{};
};

/// oneDNN's product of matrices.
inline constexpr const char* kOneDnnProduct = "mkldnn::_linear_pointwise";

}  // namespace pp::test
