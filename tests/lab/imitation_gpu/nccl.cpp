// NCCL for communicators of one member, which sends to itself: what nccl_group.cpp asks for, in which order,
// and of which communicators. Groups belong to the calling thread, as with NCCL. Calls are handed to their
// streams later, when the communicator has been asked for its state a few times. A communicator that is gone,
// one that has not handed over the calls before, and a message that nobody takes, are errors.
#include <nccl.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/lab/imitation_gpu/graphs.h"
#include "tests/lab/imitation_gpu/imitation.h"

namespace pp::test::gpu {
namespace {

struct Message {
  ncclComm_t communicator = nullptr;
  const void* from = nullptr;  ///< one of both is null
  void* to = nullptr;
  std::size_t bytes = 0;
  cudaStream_t stream = nullptr;
};

/// So often a communicator is asked before it has handed over its calls.
constexpr int kAsked = 3;

struct Communicator {
  std::function<void()> hand_over = {};  ///< empty: nothing is under way
  int asked = 0;
};

std::mutex mutex;  ///< of what follows
std::map<ncclComm_t, Communicator> alive;
std::uintptr_t made = 0;

thread_local int depth = 0;
thread_local std::vector<Message> group;

/// Whether calls of it may be made.
ncclResult_t look_at(ncclComm_t communicator) {
  const std::lock_guard lock(mutex);
  const auto found = alive.find(communicator);
  if (found == alive.end()) return ncclInvalidArgument;
  return found->second.hand_over ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t begin(ncclComm_t communicator, std::function<void()> hand_over) {
  const std::lock_guard lock(mutex);
  alive.at(communicator) = {std::move(hand_over), 0};
  return ncclInProgress;
}

ncclResult_t remove(ncclComm_t communicator) {
  const std::lock_guard lock(mutex);
  return alive.erase(communicator) == 1 ? ncclSuccess : ncclInvalidArgument;
}

Region region(const void* begin, std::size_t bytes) { return {reinterpret_cast<std::uintptr_t>(begin), bytes}; }

// Sends and receives belong together in their order. All are of one communicator.
ncclResult_t end_group() {
  const std::vector<Message> all = std::exchange(group, {});
  std::vector<Message> sends, receives;
  for (const Message& message : all) {
    if (const ncclResult_t found = look_at(message.communicator); found != ncclSuccess) return found;
    (message.from != nullptr ? sends : receives).push_back(message);
  }
  if (sends.size() != receives.size()) return ncclInvalidUsage;
  if (all.empty()) return ncclSuccess;
  return begin(all.front().communicator, [sends, receives] {
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const void* from = sends[i].from;
      void* to = receives[i].to;
      const std::size_t bytes = sends[i].bytes;
      hand_over_or_capture(receives[i].stream, {"nccl", {region(from, bytes)}, {region(to, bytes)}, [=] {
                                                  std::memcpy(to, from, bytes);
                                                }});
    }
  });
}

ncclResult_t add(const Message& message) {
  group.push_back(message);
  return depth > 0 ? ncclSuccess : end_group();
}

}  // namespace
}  // namespace pp::test::gpu

using namespace pp::test::gpu;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): NCCL's names
extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument: return "the communicator is gone";
    case ncclInvalidUsage: return "a message that nobody takes, or calls before are under way";
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
  alive[*communicator] = {};
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) { return look_at(communicator); }

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return remove(communicator); }

ncclResult_t ncclCommAbort(ncclComm_t communicator) { return remove(communicator); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  std::function<void()> due;
  {
    const std::lock_guard lock(mutex);
    const auto found = alive.find(communicator);
    if (found == alive.end()) return ncclInvalidArgument;
    Communicator& of = found->second;
    *state = of.hand_over && ++of.asked < kAsked ? ncclInProgress : ncclSuccess;
    if (*state == ncclSuccess) due = std::exchange(of.hand_over, {});
  }
  if (due) due();
  return ncclSuccess;
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
  const ncclResult_t found = look_at(communicator);
  return found == ncclSuccess ? begin(communicator, [] {}) : found;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : end_group(); }

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
