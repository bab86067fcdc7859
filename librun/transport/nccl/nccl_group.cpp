// NCCL communicators that never block the host: they are asked whether they are ready, and given up when they
// fail or when the run ends.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

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

class EventMark final : public DeviceGroup::Mark {
 public:
  explicit EventMark(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  bool done() override { return event_.query(); }
  void hold_back() override { event_.block(c10::cuda::getCurrentCUDAStream(event_.device_index())); }

 private:
  at::cuda::CUDAEvent event_{cudaEventDisableTiming};
};

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
      if (communicator_ != nullptr) check(ncclCommFinalize(communicator_));
      await_ready(kMostFarewell);
      static_cast<void>(ncclCommDestroy(std::exchange(communicator_, nullptr)));
    } catch (const std::exception&) {
      abort();
    }
  }

  void send(int to, const at::Tensor& tensor) override {
    call(tensor, [&] {
      return ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, to, communicator_,
                      (*stream_).stream());
    });
  }
  void receive(int from, const at::Tensor& tensor) override {
    call(tensor, [&] {
      return ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclInt8, from, communicator_, (*stream_).stream());
    });
  }
  void sum(const at::Tensor& tensor) override {
    call(tensor, [&] {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                           type_of(tensor), ncclSum, communicator_, (*stream_).stream());
    });
  }

  void together(const std::function<void()>& calls) override {
    const c10::cuda::CUDAGuard guard(device());
    check(ncclGroupStart());
    grouped_ = true;
    calls();
    grouped_ = false;
    check(ncclGroupEnd());
    await_ready();
  }

  std::unique_ptr<Mark> mark() override {
    const c10::cuda::CUDAGuard guard(device());
    return std::make_unique<EventMark>(*stream_);
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
  template <class Call>
  void call(const at::Tensor& tensor, Call&& body) {
    const c10::cuda::CUDAGuard guard(device());
    behind_.record(c10::cuda::getCurrentCUDAStream(device().index()));
    behind_.block(*stream_);
    c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), *stream_);
    {
      const std::lock_guard held(mutex_);
      if (communicator_ == nullptr) fail("the group was given up");
      check(body());
    }
    if (!grouped_) await_ready();
  }

  void await_ready(Clock::duration most = Clock::duration::max() / 2) {
    constexpr std::chrono::microseconds kLook(50);
    const Clock::time_point begin = Clock::now();
    while (true) {
      if (Clock::now() - begin > most) fail("a communicator does not become ready");
      {
        const std::lock_guard held(mutex_);
        ncclResult_t state = ncclSuccess;
        if (communicator_ == nullptr) fail("the group was given up");
        check(ncclCommGetAsyncError(communicator_, &state));
        check(state);
        if (state == ncclSuccess) return;
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  OwnStream stream_;
  at::cuda::CUDAEvent behind_{cudaEventDisableTiming};
  bool grouped_ = false;
  std::mutex mutex_;  ///< of what follows, which is null once it was given up
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

const pp::run::NcclModule* pp_nccl_module() {
  static constexpr pp::run::NcclModule kModule{.make_key = pp::run::make_group_key,
                                               .join_group = pp::run::join_device_group};
  return &kModule;
}
