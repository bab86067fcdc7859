// The streams in which threads hand work to CUDA devices, and who of them uses what. Internal to the module.
#pragma once

#include <c10/core/Storage.h>
#include <c10/cuda/CUDAStream.h>

#include <shared_mutex>

namespace pp::profile {

/// Where the calling thread hands work to a device. On one that it has not entered that is a stream of its own
/// as well: the default stream, which all threads share, would put their copies in a row.
c10::cuda::CUDAStream stream_on(c10::DeviceIndex index);

/// Held while a stream captures. LibTorch takes every use of memory by another stream that it is told of
/// meanwhile for one by the graph, and forgets it; an event that another thread records in the stream becomes
/// a part of the graph. So no thread does either without a share of it.
std::shared_mutex& captures();

/// Writes down that `stream` uses the room of an arrival (queued_work.h); false: the storage is none.
bool add_user_of_room(const c10::Storage& storage, const c10::cuda::CUDAStream& stream);

}  // namespace pp::profile
