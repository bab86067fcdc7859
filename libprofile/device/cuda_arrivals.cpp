#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "libprofile/device/cuda_device.h"
#include "libprofile/device/cuda_streams.h"
#include "libprofile/device/queued_work.h"

namespace pp::profile {
namespace {

using Stream = c10::cuda::CUDAStream;

/// Memory for one tensor, of a stream of arrivals; who uses it is written down as the allocator does it.
class Room {
 public:
  explicit Room(c10::Storage block) : block_(std::move(block)) {}
  /// LibTorch gets it back, and waits for its users.
  ~Room() {
    const std::shared_lock no_capture(captures());
    for (const Stream& user : users_) c10::cuda::CUDACachingAllocator::recordStream(block_.data_ptr(), user);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  void* data() const { return block_.mutable_data(); }
  std::size_t bytes() const { return block_.nbytes(); }

  /// Any thread, while somebody holds it.
  void add_user(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(users_, stream) == users_.end()) users_.push_back(stream);
  }
  /// Nobody holds it any longer.
  void end_use() {
    for (const Stream& user : users_) last_uses_.emplace_back(cudaEventDisableTiming).record(user);
  }
  /// What `stream` is handed from now on comes after those who used it before.
  void begin_use(const Stream& stream) {
    for (at::cuda::CUDAEvent& use : last_uses_) use.block(stream);
    last_uses_.clear();
    users_.clear();
  }

 private:
  c10::Storage block_;
  std::mutex mutex_;
  std::vector<Stream> users_;
  std::vector<at::cuda::CUDAEvent> last_uses_;
};

/// Rooms that nobody holds, the longest free one first.
struct FreeRooms {
  std::mutex mutex;
  std::deque<std::unique_ptr<Room>> rooms;
};

/// What the storage of a tensor in a room keeps alive.
struct Lease {
  std::shared_ptr<FreeRooms> from;
  std::unique_ptr<Room> room;
};

// A device that has failed says so at the next call; here nobody could be told, and the room is left alone.
void end_lease(void* of) {
  const std::unique_ptr<Lease> lease(static_cast<Lease*>(of));
  try {
    const std::shared_lock no_capture(captures());
    lease->room->end_use();
  } catch (const c10::Error&) {
    static_cast<void>(lease->room.release());
    return;
  }
  const std::lock_guard lock(lease->from->mutex);
  lease->from->rooms.push_back(std::move(lease->room));
}

class CudaArrivals final : public Arrivals {
 public:
  explicit CudaArrivals(c10::DeviceIndex device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  // LibTorch lets a copy between devices wait for the current stream of both. The one that arrives is no stream
  // of computations, whose memory the copy would have to wait for.
  at::Tensor copy(const at::Tensor& tensor) override {
    const Stream own = stream_on(device_);
    if (tensor.is_cuda()) stream_on(tensor.device().index());
    at::Tensor copy;
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      copy = room_for(tensor, own);
      copy.copy_(tensor, /*non_blocking=*/true);
      arrived_.record(stream_);
    }
    arrived_.block(own);
    return copy;
  }

 private:
  /// Unset, of the tensor's shape and strides where it is dense; used by `user`.
  at::Tensor room_for(const at::Tensor& tensor, const Stream& user) {
    const bool dense = tensor.is_non_overlapping_and_dense();
    const at::TensorOptions options = tensor.options().device(c10::Device(at::kCUDA, device_));
    const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
    std::unique_ptr<Room> room = take(bytes, options);
    room->add_user(user);
    void* data = room->data();
    auto* lease = new Lease{free_, std::move(room)};
    const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                               c10::DataPtr(data, lease, &end_lease, options.device()),
                               /*allocator=*/nullptr, /*resizable=*/false);
    const auto strides =
        dense ? tensor.strides().vec()
              : at::empty(tensor.sizes(), options.device(at::kMeta), tensor.suggest_memory_format())
                    .strides()
                    .vec();
    return at::empty({0}, options).set_(storage, 0, tensor.sizes(), strides);
  }

  std::unique_ptr<Room> take(std::size_t bytes, const at::TensorOptions& options) {
    constexpr std::size_t kFree = 2;
    std::unique_ptr<Room> room;
    {
      const std::lock_guard lock(free_->mutex);
      if (free_->rooms.size() >= kFree) {
        room = std::move(free_->rooms.front());
        free_->rooms.pop_front();
      }
    }
    if (room != nullptr && room->bytes() >= bytes) {
      room->begin_use(stream_);
      return room;
    }
    const auto length = static_cast<std::int64_t>(bytes);
    return std::make_unique<Room>(at::empty({length}, options.dtype(at::kByte)).storage());
  }

  c10::DeviceIndex device_;
  Stream stream_;
  at::cuda::CUDAEvent arrived_{cudaEventDisableTiming};
  std::shared_ptr<FreeRooms> free_ = std::make_shared<FreeRooms>();
};

}  // namespace

std::unique_ptr<Arrivals> make_cuda_arrivals(int index) {
  return std::make_unique<CudaArrivals>(static_cast<c10::DeviceIndex>(index));
}

bool add_user_of_room(const c10::Storage& storage, const c10::cuda::CUDAStream& stream) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &end_lease) return false;
  static_cast<Lease*>(data.get_context())->room->add_user(stream);
  return true;
}

}  // namespace pp::profile
