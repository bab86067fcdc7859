// LibTorch's operations on CUDA tensors, by the CPU's kernels on the same memory. Each of them that has a CUDA
// kernel gets one that shows its tensors to the CPU as CPU tensors, and tells the race detector what it reads
// and writes. Views stay as they are; copies of equal layout, too: they go through the runtime's memcpy.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/lab/imitation_gpu/cuda_only.h"
#include "tests/lab/imitation_gpu/graphs.h"
#include "tests/lab/imitation_gpu/imitation.h"

namespace pp::test::gpu {
namespace {

using torch::jit::Stack;

/// The value with every tensor in it replaced by what `map` makes of it; undefined ones stay.
template <class Map>
c10::IValue with_tensors(const c10::IValue& value, const Map& map) {
  const auto mapped = [&](const at::Tensor& tensor) { return tensor.defined() ? map(tensor) : tensor; };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(mapped(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(mapped(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

/// The CPU's view of CUDA memory, which it does not hold.
at::Tensor cpu_view(const at::Tensor& tensor) {
  const at::TensorOptions options = tensor.options().device(at::kCPU);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

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
    if (!tensor.is_cuda()) {
      from_host_ = from_host_ || tensor.dim() > 0;
      return tensor;
    }
    device_ = tensor.device();
    if (tensor.numel() > 0) (written ? writes_ : reads_).push_back(region_of(tensor));
    for (const auto& [there, here] : shown_) {
      if (there.is_same(tensor)) return here;
    }
    return shown_.emplace_back(tensor, cpu_view(tensor)).second;
  }

  c10::IValue to_cpu(const c10::IValue& value, bool written) {
    if (value.isGenerator()) return to_cpu(value.toGenerator());
    if (value.isDevice() && value.toDevice().is_cuda()) {
      device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    return with_tensors(value, [&](const at::Tensor& tensor) { return to_cpu(tensor, written); });
  }

  /// Of a result of the CPU's kernel: the argument that it is, or a new tensor with its values.
  at::Tensor to_cuda(const at::Tensor& tensor) {
    if (at::Tensor argument = argument_of(tensor); argument.defined()) return argument;
    at::Tensor result = room_for(tensor);
    fill(result, tensor);
    return result;
  }

  /// The tensor of the GPU that was shown as this one; undefined: none was.
  at::Tensor argument_of(const at::Tensor& tensor) const {
    if (tensor.is_cuda()) return tensor;
    for (const auto& [there, here] : shown_) {
      if (here.is_same(tensor)) return there;
    }
    return {};
  }

  /// For the values of a result; the operation writes it.
  at::Tensor room_for(const at::Tensor& tensor) {
    const c10::cuda::CUDAGuard guard(device());
    at::Tensor room = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device()));
    if (room.numel() > 0) writes_.push_back(region_of(room));
    return room;
  }

  /// The argument as it is now, whatever the host does with numbers and generators of its own until it is used.
  c10::IValue as_it_is(const c10::IValue& argument) const {
    if (argument.isGenerator() && argument.toGenerator().defined()) return argument.toGenerator().clone();
    return with_tensors(argument, [&](const at::Tensor& tensor) {
      const auto is_shown = [&](const auto& pair) { return pair.second.is_same(tensor); };
      return std::ranges::any_of(shown_, is_shown) ? tensor : tensor.clone();
    });
  }

  /// Zeros in place of what is shown: in `arguments`, and for argument_of().
  void show_zeros(std::span<c10::IValue> arguments) {
    std::vector<std::pair<at::Tensor, at::Tensor>> zeros;
    for (const auto& [there, here] : shown_) {
      zeros.emplace_back(there, at::empty_strided(here.sizes(), here.strides(), here.options()).zero_());
    }
    for (c10::IValue& argument : arguments) {
      argument = with_tensors(argument, [&](const at::Tensor& tensor) {
        for (std::size_t i = 0; i < shown_.size(); ++i) {
          if (shown_[i].second.is_same(tensor)) return zeros[i].second;
        }
        return tensor;
      });
    }
    views_ = std::exchange(shown_, std::move(zeros));
  }

  /// After a run on zeros: arguments that it has given another size get it, and the views of them as well.
  void resize_shown() {
    for (std::size_t i = 0; i < shown_.size(); ++i) {
      const auto& [there, zeros] = shown_[i];
      if (there.sizes() == zeros.sizes()) continue;
      const c10::cuda::CUDAGuard guard(device());
      there.resize_(zeros.sizes());
      if (there.numel() > 0) writes_.push_back(region_of(there));
      views_[i].second.set_(cpu_view(there));
    }
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
      if (there.numel() > 0) writes_.push_back(region_of(there));
      fill(there, here.contiguous());
    }
  }

  /// `run` is done when the stream comes to it, or at every launch of the graph that the stream captures.
  void hand_over(const std::string& operation, std::function<void()> run) const {
    const c10::cuda::CUDAGuard guard(device());
    hand_over_or_capture(stream(), {operation, reads_, writes_, std::move(run)});
  }

  /// What the host has done itself.
  void was_done(const std::string& operation) const {
    hand_over(operation, [] {});
  }

  /// The host has the result, which it cannot have of work that is only taken down.
  void show_to_host() const {
    const c10::cuda::CUDAGuard guard(device());
    TORCH_CHECK(!is_capturing(stream()), "imitation GPU: the host waits for a stream that captures");
    host_has_result(stream());
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

  void fill(const at::Tensor& there, const at::Tensor& here) {
    if (there.numel() > 0) std::memcpy(there.data_ptr(), here.data_ptr(), region_of(there).bytes);
  }

  at::Device device_ = at::kCUDA;
  bool from_host_ = false;                                ///< an argument is a tensor of the host
  std::vector<std::pair<at::Tensor, at::Tensor>> shown_;  ///< CUDA's tensor, the CPU's view of it
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;  ///< the same, while zeros are shown
  std::vector<Region> reads_, writes_;
};

/// Results of the operation on top of the stack.
std::span<c10::IValue> results_on(Stack& stack, const c10::FunctionSchema& schema) {
  return std::span(stack).last(schema.returns().size());
}

/// A sum's bits depend on how many threads add it up: as many as where the operation was called.
class ThreadsOfOperation {
 public:
  explicit ThreadsOfOperation(int threads) : before_(at::get_num_threads()) { set(threads); }
  ~ThreadsOfOperation() { set(before_); }
  ThreadsOfOperation(const ThreadsOfOperation&) = delete;
  ThreadsOfOperation& operator=(const ThreadsOfOperation&) = delete;

 private:
  static void set(int threads) {
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
  }
  int before_;
};

/// Hands the operation over, to be done later. Its results get their shapes from a run on zeros, as a GPU's
/// come from the host alone; nothing is read or written.
void put_off(const c10::OperatorHandle& operation, Call& call, Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const auto arguments = std::span(*stack).last(schema.arguments().size());
  Stack shown;
  for (const c10::IValue& argument : arguments) shown.push_back(call.as_it_is(argument));
  call.show_zeros(arguments);
  operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.resize_shown();
  std::vector<at::Tensor> made;  // per tensor of the results; undefined: an argument
  for (c10::IValue& result : results_on(*stack, schema)) {
    result = with_tensors(result, [&](const at::Tensor& tensor) {
      const at::Tensor argument = call.argument_of(tensor);
      at::Tensor place = argument.defined() ? argument : call.room_for(tensor);
      made.push_back(argument.defined() ? at::Tensor() : cpu_view(place));
      return place;
    });
  }
  call.hand_over(schema.name(), [operation, shown, made, threads = at::get_num_threads()] {
    const at::AutoDispatchBelowAutograd below;  // the thread that waits may be anywhere
    const ThreadsOfOperation as_many(threads);
    Stack again = shown;
    operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &again);
    auto place = made.begin();
    for (const c10::IValue& result : results_on(again, operation.schema())) {
      with_tensors(result, [&](const at::Tensor& tensor) {
        if (place->defined()) place->copy_(tensor);
        ++place;
        return tensor;
      });
    }
  });
}

/// What the host learns, so that it waits: numbers, and shapes that depend on values.
bool tells_host(const c10::FunctionSchema& schema) {
  static const std::set<std::string_view> by_value{"aten::nonzero", "aten::masked_select", "aten::_unique2"};
  return by_value.contains(schema.name()) ||
         std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
           return !result.type()->isSubtypeOf(*c10::TensorType::get()) &&
                  !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
         });
}

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
  const bool told = tells_host(schema);
  if (told) call.show_to_host();
  if (!told && (works_late() || is_capturing(call.stream()))) return put_off(operation, call, stack);
  operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (c10::IValue& result : results_on(*stack, schema))
    result = with_tensors(result, [&](const at::Tensor& tensor) { return call.to_cuda(tensor); });
  call.resize_arguments();
  call.was_done(schema.name());
  if (told) call.show_to_host();
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
  const at::Tensor to = call.to_cpu(self, /*written=*/true);
  const at::Tensor from = source.is_cuda() ? call.to_cpu(source, /*written=*/false) : source.clone();
  call.hand_over("aten::copy_", [to, from] { to.copy_(from); });
  if (!self.is_cuda()) call.show_to_host();
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
    add({"aten::_scaled_dot_product_flash_attention", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&flash_attention));
    add({"aten::_scaled_dot_product_flash_attention_backward", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&flash_attention_backward));
    add({"aten::_scaled_dot_product_efficient_attention", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&efficient_attention));
    add({"aten::_scaled_dot_product_efficient_attention_backward", ""}, c10::DispatchKey::CPU,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&efficient_attention_backward));
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
    add({"aten::_fused_sdp_choice", ""}, c10::DispatchKey::CUDA,
        c10::KernelFunction::makeFromUnboxedRuntimeFunction(&attention_choice));
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
