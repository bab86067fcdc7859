#include "tests/lab/imitation_gpu/race_detector.h"

#include <algorithm>
#include <utility>

namespace pp::test::gpu {

void merge(VectorClock& clock, const VectorClock& other) {
  for (const auto& [stream, launches] : other) clock[stream] = std::max(clock[stream], launches);
}

void RaceDetector::launch(Stream stream, const std::string& what, std::span<const Region> reads,
                          std::span<const Region> writes) {
  const std::lock_guard lock(mutex_);
  VectorClock& clock = clocks_[stream];
  merge(clock, host_);
  const long launch = ++clock[stream];
  for (const Region& region : reads) touch(region, {region.end(), /*write=*/false, stream, launch, what});
  for (const Region& region : writes) touch(region, {region.end(), /*write=*/true, stream, launch, what});
}

VectorClock RaceDetector::record(Stream stream) {
  const std::lock_guard lock(mutex_);
  merge(clocks_[stream], host_);
  return clocks_[stream];
}

void RaceDetector::stream_waits(Stream stream, const VectorClock& event) {
  const std::lock_guard lock(mutex_);
  merge(clocks_[stream], event);
}

void RaceDetector::host_waits(const VectorClock& event) {
  const std::lock_guard lock(mutex_);
  merge(host_, event);
}

void RaceDetector::host_waits_for(Stream stream) {
  const std::lock_guard lock(mutex_);
  merge(host_, clocks_[stream]);
}

void RaceDetector::forget(const Region& freed) {
  const std::lock_guard lock(mutex_);
  accesses_.erase(accesses_.lower_bound(freed.begin), accesses_.lower_bound(freed.end()));
}

std::set<std::string> RaceDetector::races() const {
  const std::lock_guard lock(mutex_);
  return races_;
}

long RaceDetector::accesses() const {
  const std::lock_guard lock(mutex_);
  return looked_at_;
}

bool RaceDetector::comes_before(const Access& other, Stream stream) {
  const VectorClock& clock = clocks_[stream];
  const auto known = clock.find(other.stream);
  return other.stream == stream || (known != clock.end() && known->second >= other.launch);
}

// A write comes after every earlier access and a read after every earlier write. What a write covers is
// forgotten: later work that comes after the write comes after that as well. So is what the same stream has
// read before.
void RaceDetector::touch(const Region& region, Access mine) {
  if (region.bytes == 0) return;
  ++looked_at_;
  largest_ = std::max(largest_, region.bytes);
  Accesses rest;
  auto it = accesses_.lower_bound(region.begin - std::min(region.begin, largest_));
  while (it != accesses_.end() && it->first < region.end()) {
    const auto& [begin, other] = *it;
    const bool apart = other.end <= region.begin;
    if (!apart && (mine.write || other.write) && !comes_before(other, mine.stream)) {
      races_.insert(other.what + (other.write ? " writes" : " reads") + " what " + mine.what +
                    (mine.write ? " writes" : " reads"));
    }
    const bool read_again =
        !other.write && other.stream == mine.stream && begin >= region.begin && other.end <= region.end();
    if (apart || !(mine.write || read_again)) {
      ++it;
      continue;
    }
    Access part = other;
    part.end = region.begin;
    if (begin < region.begin) rest.emplace(begin, part);
    if (other.end > region.end()) rest.emplace(region.end(), other);
    it = accesses_.erase(it);
  }
  accesses_.merge(rest);
  accesses_.emplace(region.begin, std::move(mine));
}

}  // namespace pp::test::gpu
