// Choices that a single number decides, on every machine the same (std distributions differ between libraries).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pp::fuzz {

/// splitmix64
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0..count-1
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  int integer(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1)));
  }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class List>
  auto& pick(List& list) {
    return list[below(std::size(list))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace pp::fuzz
