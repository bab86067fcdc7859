#include "libprofile/device/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/cuda_module.h"
#include "libprofile/device/cuda_streams.h"

namespace pp::profile {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

c10::DeviceIndex ordinal(int index) { return static_cast<c10::DeviceIndex>(index); }

/// Called by the allocator, on the thread that allocates or frees. A tensor that nobody holds any more is not
/// charged, although its memory may wait for a stream.
void book(const TraceEntry& entry) {
  if (entry.action_ == TraceEntry::ALLOC) {
    block_books().made(entry.addr_, static_cast<std::int64_t>(entry.size_));
  } else if (entry.action_ == TraceEntry::FREE_REQUESTED) {
    block_books().freed(entry.addr_);
  }
}

/// What holds for the process: the one place that touches LibTorch's global settings for CUDA. LibTorch looks
/// for its CUDA half once.
bool start_cuda() {
  if (!at::detail::getCUDAHooks().hasCUDART()) {
    throw Error(ErrorKind::internal,
                "LibTorch has computed before its CUDA half was loaded, and takes it no more");
  }
  at::globalContext().lazyInitDevice(at::kCUDA);
  // What has no deterministic kernel says so (libprofile/model/determinism.h).
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setAllowTF32CuDNN(false);  // LibTorch's default: convolutions with 10 bits of mantissa
  at::globalContext().setAllowTF32CuBLAS(false);
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&book);
  return true;
}

void require_cuda() {
  static const bool started = start_cuda();
  static_cast<void>(started);
}

/// Where what the calling thread copies to a device from another one arrives.
c10::cuda::CUDAStream arrivals_on(c10::DeviceIndex index) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const auto found = streams.find(index);
  if (found != streams.end()) return found->second;
  return streams.emplace(index, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index)).first->second;
}

class EventTimer final : public Timer {
 public:
  void mark() override {
    if (used_ == events_.size())
      events_.emplace_back(cudaEventDefault);  // the default constructor's do not time
    events_[used_++].record();
  }

  std::vector<double> take() override {
    std::vector<double> laps;
    if (used_ > 0) events_[used_ - 1].synchronize();
    for (std::size_t i = 1; i < used_; ++i) laps.push_back(1e-3 * events_[i - 1].elapsed_time(events_[i]));
    used_ = 0;
    return laps;
  }

 private:
  std::deque<at::cuda::CUDAEvent> events_;  ///< made once, recorded again after each take()
  std::size_t used_ = 0;
};

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(Timing timing)
      : event_(cudaEventBlockingSync | (timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming)) {}
  void record() override { event_.record(); }
  void hold_back(const c10::Device& device) const override { event_.block(stream_on(device.index())); }
  void wait() const override {
    const c10::cuda::CUDAGuard guard(
        event_.device_index());  // else a thread that has entered none starts device 0
    event_.synchronize();
  }
  Seconds since(const DeviceEvent& earlier) const override {
    const c10::cuda::CUDAGuard guard(event_.device_index());
    float milliseconds = 0;
    const auto& before = static_cast<const CudaEvent&>(earlier);
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, before.event_.event(), event_.event()));
    return std::chrono::duration<float, std::milli>(milliseconds);
  }

 private:
  mutable at::cuda::CUDAEvent event_;
};

/// A graph a piece; all share a pool of memory of LibTorch's allocator.
class CudaRecording final : public Recording {
 public:
  void record(const std::function<void()>& work) override {
    const std::lock_guard lock(captures());
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Other threads go on with their streams: only this one must not wait.
    graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon(*graph);
      throw;
    }
    graph->capture_end();
    graphs_.push_back(std::move(graph));
    // Before each capture LibTorch writes to the state of its own generator, which all streams share.
    c10::cuda::getCurrentCUDAStream().synchronize();
  }

  void replay(std::size_t piece) override { graphs_[piece]->replay(); }

 private:
  /// Work that cannot be recorded has ended the capture already, which capture_end() complains of.
  static void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      static_cast<void>(cudaGetLastError());
    }
  }

  c10::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs_;
};

}  // namespace

c10::cuda::CUDAStream stream_on(c10::DeviceIndex index) {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(index);
  if (current != c10::cuda::getDefaultCUDAStream(index)) return current;
  const c10::cuda::CUDAStream own = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index);
  at::cuda::CUDAEvent before;  // what the thread has done on this device without having entered it
  before.record(current);
  before.block(own);
  c10::cuda::setCurrentCUDAStream(own);
  return own;
}

std::shared_mutex& captures() {
  static std::shared_mutex mutex;
  return mutex;
}

void open_cuda_devices(std::span<const int> indices) {
  require_cuda();
  for (const int index : indices) {
    const c10::cuda::CUDAGuard guard(ordinal(index));
    cuda_reference()();
    wait_for_cuda(index);
    for (const int other : indices) {
      if (other != index) at::cuda::get_p2p_access(ordinal(index), ordinal(other));
    }
  }
}

void enter_cuda_device(int index) {
  require_cuda();
  c10::cuda::set_device(ordinal(index));
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, ordinal(index)));
}

void take_cuda_workspace() {
  const at::Tensor square = at::ones({16, 16}, at::TensorOptions(at::kCUDA));
  at::mm(square, square);
  at::addmm(square[0], square, square);  // by cuBLASLt
}

std::string cuda_identity(int index) {
  require_cuda();
  std::string text;
  for (const char byte : at::cuda::getDeviceProperties(ordinal(index))->uuid.bytes) {
    constexpr auto kDigits = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

at::Generator cuda_generator(int index) { return at::cuda::detail::createCUDAGenerator(ordinal(index)); }

std::unique_ptr<DeviceEvent> make_cuda_event(Timing timing) { return std::make_unique<CudaEvent>(timing); }

std::unique_ptr<Timer> make_event_timer() { return std::make_unique<EventTimer>(); }

std::unique_ptr<Recording> make_cuda_recording() { return std::make_unique<CudaRecording>(); }

std::function<void()> cuda_reference() {
  const at::Tensor factor = at::ones({1024, 1024}, at::TensorOptions(at::kCUDA));
  at::Tensor product = at::empty_like(factor);
  return [factor, product]() mutable { at::mm_out(product, factor, factor); };
}

void wait_for_cuda(int index) { c10::cuda::getCurrentCUDAStream(ordinal(index)).synchronize(); }

void keep_for_this_stream(const c10::Storage& block) {
  const std::shared_lock lock(captures());
  const c10::cuda::CUDAStream stream = stream_on(block.device().index());
  if (!add_user_of_room(block, stream)) c10::cuda::CUDACachingAllocator::recordStream(block.data_ptr(), stream);
}

// LibTorch lets a copy between devices wait for the current stream of both. The one that arrives is no stream
// of computations, whose memory the copy would have to wait for.
at::Tensor copy_between_devices(const at::Tensor& tensor, int index) {
  const c10::cuda::CUDAStream arrivals = arrivals_on(ordinal(index));
  at::Tensor copy;
  {
    const c10::cuda::CUDAStreamGuard guard(arrivals);
    copy = tensor.to(c10::Device(at::kCUDA, ordinal(index)), /*non_blocking=*/true);
  }
  at::cuda::CUDAEvent arrived;
  arrived.record(arrivals);
  arrived.block(stream_on(ordinal(index)));
  keep_for_this_stream(copy.storage());
  return copy;
}

}  // namespace pp::profile
