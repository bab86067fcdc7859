#include <cstdint>

#include "libprofile/model/ops.h"

namespace pp::model {
namespace {

/// One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
std::uint64_t splitmix(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace

std::uint64_t mix(const RandomKey& key, int layer) {
  std::uint64_t state = splitmix(key.seed);
  state = splitmix(state ^ static_cast<std::uint64_t>(key.step));
  state = splitmix(state ^ static_cast<std::uint64_t>(key.micro_batch));
  return splitmix(state ^ static_cast<std::uint64_t>(layer));
}

}  // namespace pp::model
