// NCCL for communicators of one member, which sends to itself: what nccl_group.cpp asks for, in which order,
// and of which communicators. Groups belong to the calling thread, as with NCCL; what is in none is done at
// once. A communicator that is gone, and a message that nobody takes, are errors.
#include <nccl.h>

#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/imitation_gpu/graphs.h"
#include "tests/imitation_gpu/imitation.h"

namespace pp::test::gpu {
namespace {

struct Message {
  ncclComm_t communicator = nullptr;
  const void* from = nullptr;  ///< one of both is null
  void* to = nullptr;
  std::size_t bytes = 0;
  cudaStream_t stream = nullptr;
};

std::mutex mutex;  ///< of what follows
std::set<ncclComm_t> alive;
std::uintptr_t made = 0;

thread_local int depth = 0;
thread_local std::vector<Message> group;

bool is_alive(ncclComm_t communicator) {
  const std::lock_guard lock(mutex);
  return alive.contains(communicator);
}

ncclResult_t remove(ncclComm_t communicator) {
  const std::lock_guard lock(mutex);
  return alive.erase(communicator) == 1 ? ncclSuccess : ncclInvalidArgument;
}

Region region(const void* begin, std::size_t bytes) { return {reinterpret_cast<std::uintptr_t>(begin), bytes}; }

// Sends and receives belong together in their order.
ncclResult_t hand_over_group() {
  std::vector<Message> sends, receives;
  for (const Message& message : std::exchange(group, {})) {
    if (!is_alive(message.communicator)) return ncclInvalidArgument;
    (message.from != nullptr ? sends : receives).push_back(message);
  }
  if (sends.size() != receives.size()) return ncclInvalidUsage;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const void* from = sends[i].from;
    void* to = receives[i].to;
    const std::size_t bytes = sends[i].bytes;
    hand_over_or_capture(receives[i].stream, {"nccl", {region(from, bytes)}, {region(to, bytes)}, [=] {
                                                std::memcpy(to, from, bytes);
                                              }});
  }
  return ncclSuccess;
}

ncclResult_t add(const Message& message) {
  group.push_back(message);
  return depth > 0 ? ncclSuccess : hand_over_group();
}

}  // namespace
}  // namespace pp::test::gpu

using namespace pp::test::gpu;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): NCCL's names
extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument: return "the communicator is gone";
    case ncclInvalidUsage: return "a message that nobody takes";
    default: return "no error";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId, int, ncclConfig_t*) {
  if (size != 1) return ncclInvalidUsage;
  const std::lock_guard lock(mutex);
  *communicator = reinterpret_cast<ncclComm_t>(++made);
  alive.insert(*communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  return is_alive(communicator) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return remove(communicator); }

ncclResult_t ncclCommAbort(ncclComm_t communicator) { return remove(communicator); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclCommFinalize(communicator);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add({.communicator = communicator, .from = from, .bytes = count, .stream = stream});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add({.communicator = communicator, .to = to, .bytes = count, .stream = stream});
}

/// The sum over one member, in place.
ncclResult_t ncclAllReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t) {
  return ncclCommFinalize(communicator);
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : hand_over_group(); }

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
