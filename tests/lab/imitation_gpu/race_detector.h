// Which accesses to device memory have no order: a happens-before analysis by vector clocks (Mattern 1989) over
// streams, events and the host. Plain C++, no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace pp::test::gpu {

using Stream = std::uintptr_t;  ///< any name but 0

struct Region {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::uintptr_t end() const { return begin + bytes; }
};

/// How many launches of each stream are over.
using VectorClock = std::map<Stream, long>;

/// The later of both, for each stream.
void merge(VectorClock& clock, const VectorClock& other);

/// What one thread of the host has waited for counts for all its threads: in the order of this execution,
/// nothing that any of them launches later can come before it. So a missing wait shows whenever no other thread
/// happens to wait in its place. All members may be called from any thread. A launch costs O(live regions it
/// touches).
class RaceDetector {
 public:
  /// Work in `stream`, after all that the host has waited for.
  void launch(Stream stream, const std::string& what, std::span<const Region> reads,
              std::span<const Region> writes);
  /// An event: what `stream` has been handed so far.
  VectorClock record(Stream stream);
  /// Later work of `stream` comes after the event.
  void stream_waits(Stream stream, const VectorClock& event);
  void host_waits(const VectorClock& event);
  void host_waits_for(Stream stream);
  /// The memory is gone: what comes at these addresses has nothing to do with it.
  void forget(const Region& freed);

  /// `aten::relu writes what aten::add reads`: each pair of operations that met without order once.
  std::set<std::string> races() const;
  /// Regions looked at so far.
  long accesses() const;

 private:
  struct Access {
    std::uintptr_t end = 0;
    bool write = false;
    Stream stream = 0;
    long launch = 0;
    std::string what;
  };
  using Accesses = std::multimap<std::uintptr_t, Access>;  ///< by first address

  void touch(const Region& region, Access mine);
  bool comes_before(const Access& other, Stream stream);

  mutable std::mutex mutex_;
  std::map<Stream, VectorClock> clocks_;
  VectorClock host_;
  Accesses accesses_;
  std::size_t largest_ = 0;  ///< bytes of the largest region so far: how far back an overlap may begin
  long looked_at_ = 0;
  std::set<std::string> races_;
};

}  // namespace pp::test::gpu
