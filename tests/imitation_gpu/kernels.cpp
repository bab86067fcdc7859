// LibTorch's operations on CUDA tensors, by the CPU's kernels on the same memory. Each of them that has a CUDA
// kernel gets one that shows its tensors to the CPU as CPU tensors, and tells the race detector what it reads
// and writes. Views stay as they are; copies of equal layout, too: they go through the runtime's memcpy.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/imitation_gpu/cuda_only.h"
#include "tests/imitation_gpu/imitation.h"

namespace pp::test::gpu {
namespace {

using torch::jit::Stack;

/// The memory between a tensor's first and last element.
Region region_of(const at::Tensor& tensor) {
  std::int64_t elements = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) elements += (tensor.size(d) - 1) * tensor.stride(d);
  return {reinterpret_cast<std::uintptr_t>(tensor.data_ptr()),
          static_cast<std::size_t>(elements) * static_cast<std::size_t>(tensor.element_size())};
}

/// One operation's arguments on the way to the CPU, its results on the way back.
class Call {
 public:
  at::Tensor to_cpu(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      from_host_ = from_host_ || tensor.dim() > 0;
      return tensor;
    }
    device_ = tensor.device();
    if (tensor.numel() > 0) (written ? writes_ : reads_).push_back(region_of(tensor));
    for (const auto& [there, here] : shown_) {
      if (there.is_same(tensor)) return here;
    }
    const at::TensorOptions options = tensor.options().device(at::kCPU);
    const at::Tensor here = tensor.numel() == 0
                                ? at::empty(tensor.sizes(), options)
                                : at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
    return shown_.emplace_back(tensor, here).second;
  }

  c10::IValue to_cpu(const c10::IValue& value, bool written) {
    if (value.isTensor()) return to_cpu(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_cpu(tensor, written));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(to_cpu(*tensor, written)) : std::nullopt);
      return list;
    }
    if (value.isGenerator()) return to_cpu(value.toGenerator());
    if (value.isDevice() && value.toDevice().is_cuda()) {
      device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    return value;
  }

  c10::IValue to_cuda(const c10::IValue& value) {
    if (value.isTensor()) return to_cuda(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_cuda(tensor));
    return list;
  }

  /// Tensors of a GPU and of the host do not go together; numbers, and where a tensor is indexed, do.
  void check_devices(const std::string& operation) const {
    const bool indexes = operation.find("index") != std::string::npos;
    TORCH_CHECK(!from_host_ || shown_.empty() || indexes, "imitation GPU: ", operation,
                " is given tensors of the GPU and of the host");
  }

  /// Arguments that the operation has given another size.
  void resize_arguments() {
    for (const auto& [there, here] : shown_) {
      if (there.sizes() == here.sizes()) continue;
      const c10::cuda::CUDAGuard guard(device());
      there.resize_(here.sizes());
      fill(there, here.contiguous());
    }
  }

  void launch(const std::string& operation) const {
    const c10::cuda::CUDAGuard guard(device());
    launched(stream(), operation, reads_, writes_);
  }
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device().index()).stream(); }

 private:
  at::Device device() const {
    return {at::kCUDA, device_.has_index() ? device_.index() : c10::cuda::current_device()};
  }

  /// Draws that depend on the generator's seed and on how many came before.
  c10::IValue to_cpu(const at::Generator& generator) {
    if (!generator.defined() || generator.device().type() != at::kCUDA) return generator;
    device_ = generator.device();
    constexpr std::uint64_t kDraws = 4;  // the offset's unit
    auto* cuda = generator.get<at::CUDAGeneratorImpl>();
    const std::scoped_lock lock(cuda->mutex_);
    const std::uint64_t offset = cuda->philox_offset_per_thread();
    cuda->set_philox_offset_per_thread(offset + kDraws);
    return at::make_generator<at::CPUGeneratorImpl>(cuda->current_seed() * 1000003 + offset);
  }

  at::Tensor to_cuda(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cuda()) return tensor;
    for (const auto& [there, here] : shown_) {
      if (here.is_same(tensor)) return there;
    }
    const c10::cuda::CUDAGuard guard(device());
    at::Tensor result = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device()));
    fill(result, tensor);
    return result;
  }

  void fill(const at::Tensor& there, const at::Tensor& here) {
    if (there.numel() == 0) return;
    writes_.push_back(region_of(there));
    std::memcpy(there.data_ptr(), here.data_ptr(), writes_.back().bytes);
  }

  at::Device device_ = at::kCUDA;
  bool from_host_ = false;                                ///< an argument is a tensor of the host
  std::vector<std::pair<at::Tensor, at::Tensor>> shown_;  ///< CUDA's tensor, the CPU's view of it
  std::vector<Region> reads_, writes_;
};

void run_on_cpu(const c10::OperatorHandle& operation, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  Call call;
  auto argument = stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  for (const c10::Argument& declared : schema.arguments()) {
    // The fused optimizers declare that they write gradients, which they do only when they scale them.
    const bool written =
        declared.alias_info() != nullptr && declared.alias_info()->isWrite() && declared.name() != "grads";
    *argument = call.to_cpu(*argument, written);
    ++argument;
  }
  call.check_devices(schema.name());
  operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto result = stack->end() - static_cast<std::ptrdiff_t>(schema.returns().size());
       result != stack->end(); ++result)
    *result = call.to_cuda(*result);
  call.resize_arguments();
  call.launch(schema.name());
  if (schema.name() == "aten::_local_scalar_dense") host_has_result(call.stream());
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("aten::copy_", "")
                                    .typed<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>();
  if (self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() && self.is_contiguous() &&
      source.is_contiguous()) {
    return operation.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), self, source, non_blocking);
  }
  Call call;
  call.to_cpu(self, /*written=*/true).copy_(call.to_cpu(source, /*written=*/false));
  call.launch("aten::copy_");
  if (!self.is_cuda()) host_has_result(call.stream());
  return self;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

/// Operations on memory and layout alone, which CUDA tensors do as on a GPU.
bool needs_no_kernel(const std::string& name) {
  static const std::set<std::string_view> names{"aten::empty",      "aten::empty_strided", "aten::resize_",
                                                "aten::set_",       "aten::record_stream", "aten::is_pinned",
                                                "aten::_pin_memory"};
  return names.contains(name);
}

/// LibTorch chooses a backend for these by the device; the CPU's choice is taken.
bool chooses_backend(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

/// LibTorch warns of each kernel that another one replaces.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Made after LibTorch's own registrations, which it overrides.
struct Replacement {
  Replacement() {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    const auto add = [&](const c10::OperatorName& name, c10::DispatchKey key, c10::KernelFunction kernel) {
      held.push_back(
          dispatcher.registerImpl(name, key, std::move(kernel), std::nullopt, nullptr, "imitation GPU"));
    };
    add({"aten::_thnn_fused_lstm_cell", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&lstm_cell));
    add({"aten::_thnn_fused_lstm_cell_backward_impl", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&lstm_cell_backward));
    add({"aten::_fused_rms_norm_backward", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&rms_norm_backward));
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto operation = dispatcher.findSchema(name);
      if (!operation || !name.name.starts_with("aten::") || needs_no_kernel(name.name) ||
          returns_view(operation->schema()))
        continue;
      if (operation->hasKernelForDispatchKey(c10::DispatchKey::CUDA) || chooses_backend(name.name))
        add(name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
    add({"aten::copy_", ""}, c10::DispatchKey::CUDA,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&copy));
    at::globalContext().setUserEnabledCuDNN(false);
    at::globalContext().setSDPUseFlash(false);
    at::globalContext().setSDPUseMemEfficient(false);
    at::globalContext().setSDPUseCuDNN(false);
  }

  std::vector<c10::RegistrationHandleRAII> held;
};

[[maybe_unused]] const auto* const replacement = new Replacement;  // as long as the process

}  // namespace
}  // namespace pp::test::gpu
