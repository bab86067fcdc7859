// NCCL communicators that never block the host: they are asked whether they are ready, and given up when they
// fail or when the run ends.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/transport/nccl/nccl_module.h"

namespace pp::run {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kMostFarewell(5);

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::run, "NCCL: " + what); }

void check(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) fail(ncclGetErrorString(result));
}

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return ncclFloat32;
    case at::kDouble: return ncclFloat64;
    case at::kHalf: return ncclFloat16;
    case at::kBFloat16: return ncclBfloat16;
    default: fail("sums are of floating numbers");
  }
}

/// The program's, which knows what its other threads do with the allocator meanwhile.
KeepForStream& keep() {
  static KeepForStream function = nullptr;
  return function;
}

/// A stream that no pool hands out to others: what waits for a partner must hold nobody else back.
class OwnStream {
 public:
  explicit OwnStream(c10::DeviceIndex device) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
    stream_.emplace(c10::cuda::getStreamFromExternal(handle_, device));
  }
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(handle_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  const c10::cuda::CUDAStream& operator*() const { return *stream_; }

 private:
  cudaStream_t handle_ = nullptr;
  std::optional<c10::cuda::CUDAStream> stream_;
};

/// A place in the group's stream: recorded when NCCL has handed the calls before it to the device.
using Place = std::shared_ptr<at::cuda::CUDAEvent>;

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(const std::string& key, int me, int size, const at::Device& device)
      : DeviceGroup(me, size, device), stream_(device.index()) {
    const c10::cuda::CUDAGuard guard(device);
    ncclUniqueId id;
    if (key.size() != sizeof id.internal) fail("a key of " + std::to_string(key.size()) + " bytes");
    std::memcpy(id.internal, key.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&communicator_, size, id, me, &config));
    await_ready();
  }

  // What partners have yet to take is finished first.
  ~NcclGroup() override {
    try {
      const c10::cuda::CUDAGuard guard(device());
      if (communicator_ != nullptr && under_way_) await_ready(kMostFarewell);
      if (communicator_ != nullptr) check(ncclCommFinalize(communicator_));
      await_ready(kMostFarewell);
      static_cast<void>(ncclCommDestroy(std::exchange(communicator_, nullptr)));
    } catch (const std::exception&) {
      abort();
    }
  }

  void send(int to, const at::Tensor& tensor) override {
    call(tensor, [this, to, tensor] {
      return ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, to, communicator_,
                      (*stream_).stream());
    });
  }
  void receive(int from, const at::Tensor& tensor) override {
    call(tensor, [this, from, tensor] {
      return ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclInt8, from, communicator_, (*stream_).stream());
    });
  }
  void sum(const at::Tensor& tensor) override {
    call(tensor, [this, tensor, type = type_of(tensor)] {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                           type, ncclSum, communicator_, (*stream_).stream());
    });
  }

  // NCCL hears of the calls when all of them are known: what throws before leaves nothing open, and nobody
  // aborts the communicator between the first and the last.
  void together(const std::function<void()>& calls) override {
    settle();
    grouped_.emplace();
    try {
      calls();
    } catch (...) {
      grouped_.reset();
      held_.clear();
      throw;
    }
    const std::vector<Call> all = *std::exchange(grouped_, std::nullopt);
    const c10::cuda::CUDAGuard guard(device());
    hand_over([&] {
      check(ncclGroupStart());
      ncclResult_t result = ncclSuccess;
      for (const Call& one : all) {
        if (result == ncclSuccess || result == ncclInProgress) result = one();
      }
      const ncclResult_t end = ncclGroupEnd();
      check(result);
      return end;
    });
  }

  void beside(const std::function<void()>& work) override {
    settle();
    const c10::cuda::CUDAGuard guard(device());
    behind_.record(c10::cuda::getCurrentCUDAStream(device().index()));
    behind_.block(*stream_);
    const c10::cuda::CUDAStreamGuard in(*stream_);
    work();
  }

  std::unique_ptr<Mark> mark() override {
    open_.push_back(std::make_shared<at::cuda::CUDAEvent>(cudaEventDisableTiming));
    auto mark = std::make_unique<EventMark>(*this, open_.back());
    if (!under_way_) settle();
    return mark;
  }

  std::string failure() override {
    const std::lock_guard held(mutex_);
    ncclResult_t state = ncclSuccess;
    if (communicator_ == nullptr) return "given up";
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
    if (asked != ncclSuccess) return ncclGetErrorString(asked);
    return state == ncclSuccess || state == ncclInProgress ? "" : ncclGetErrorString(state);
  }

  void abort() noexcept override {
    const std::lock_guard held(mutex_);
    if (communicator_ != nullptr) static_cast<void>(ncclCommAbort(communicator_));
    communicator_ = nullptr;
  }

 private:
  using Call = std::function<ncclResult_t()>;

  class EventMark final : public Mark {
   public:
    EventMark(NcclGroup& group, Place place) : group_(group), place_(std::move(place)) {}
    bool done() override { return group_.is_settled() && place_->query(); }
    void hold_back() override {
      group_.settle();
      place_->block(c10::cuda::getCurrentCUDAStream(place_->device_index()));
    }

   private:
    NcclGroup& group_;
    Place place_;
  };

  void call(const at::Tensor& tensor, Call body) {
    if (!grouped_) settle();  // or its kernel would wait for what this call waits for
    const c10::cuda::CUDAGuard guard(device());
    behind_.record(c10::cuda::getCurrentCUDAStream(device().index()));
    behind_.block(*stream_);
    {
      const c10::cuda::CUDAStreamGuard in(*stream_);
      keep()(tensor);
    }
    held_.push_back(tensor);
    if (grouped_) return grouped_->push_back(std::move(body));
    hand_over(body);
  }

  void hand_over(const Call& body) {
    {
      const std::lock_guard held(mutex_);
      if (communicator_ == nullptr) fail("the group was given up");
      check(body());
    }
    under_way_ = true;
  }

  /// NCCL hands calls to the device by a thread of its own, tens of microseconds later. They are waited for
  /// when the next one is made, or when a place behind them is asked for: mostly they are over by then.
  void settle() {
    if (std::exchange(under_way_, false)) await_ready();
    held_.clear();
    const c10::cuda::CUDAGuard guard(device());
    for (const Place& place : std::exchange(open_, {})) place->record(*stream_);
  }

  bool is_settled() {
    if (under_way_ && !is_ready()) return false;
    settle();
    return true;
  }

  bool is_ready() {
    const std::lock_guard held(mutex_);
    ncclResult_t state = ncclSuccess;
    if (communicator_ == nullptr) fail("the group was given up");
    check(ncclCommGetAsyncError(communicator_, &state));
    check(state);
    return state == ncclSuccess;
  }

  // A message is handed over within tens of microseconds, which a sleep would double; a partner that has yet to
  // come may take seconds.
  void await_ready(Clock::duration most = Clock::duration::max() / 2) {
    constexpr std::chrono::microseconds kSoon(200), kLook(50);
    const Clock::time_point begin = Clock::now();
    while (true) {
      const Clock::duration waited = Clock::now() - begin;
      if (waited > most) fail("a communicator does not become ready");
      if (is_ready()) return;
      if (waited < kSoon) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  OwnStream stream_;
  at::cuda::CUDAEvent behind_{cudaEventDisableTiming};
  std::optional<std::vector<Call>> grouped_;  ///< those of together() so far
  bool under_way_ = false;                    ///< the last call may not have been handed to the device
  std::vector<Place> open_;                   ///< behind it
  std::vector<at::Tensor> held_;  ///< its tensors: the allocator sees a use once it is in the stream
  std::mutex mutex_;              ///< of what follows, which is null once it was given up
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::string make_group_key() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<DeviceGroup> join_device_group(const std::string& key, int me, int size,
                                               const at::Device& device) {
  return std::make_unique<NcclGroup>(key, me, size, device);
}

}  // namespace pp::run

const pp::run::NcclModule* pp_nccl_module(pp::run::KeepForStream keep_for_stream) {
  pp::run::keep() = keep_for_stream;
  static constexpr pp::run::NcclModule kModule{.make_key = pp::run::make_group_key,
                                               .join_group = pp::run::join_device_group};
  return &kModule;
}
