// The constants of a call as tensors, made once per device and type of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "libprofile/core/model/aten_call.h"

namespace pp::model::aten {

/// Thread-safe. What it hands out lives as long as it does.
class Constants {
 public:
  explicit Constants(std::vector<AtenConstant> constants) : constants_(std::move(constants)) {}

  /// `dtype`: of the floating ones.
  const std::vector<at::Tensor>& on(const at::Device& device, at::ScalarType dtype);
  /// Adds all that has been made for devices.
  void collect(std::vector<at::Tensor>& tensors);

 private:
  struct Made {
    at::Device device;
    at::ScalarType dtype;
    std::vector<at::Tensor> tensors;
  };
  std::vector<AtenConstant> constants_;
  std::mutex mutex_;
  std::list<Made> made_;
};

}  // namespace pp::model::aten
