// Content hashes: `sha256:` and 64 hex digits (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pp {

/// Of bytes that come in pieces.
class ContentHash {
 public:
  ContentHash();
  void update(std::string_view bytes);
  /// Of all bytes so far.
  std::string text() const;

 private:
  using State = std::array<std::uint32_t, 8>;
  using Block = std::array<std::uint8_t, 64>;

  State state_;
  Block block_{};
  std::size_t filled_ = 0;  ///< bytes of the block
  std::uint64_t length_ = 0;
};

std::string content_hash(std::string_view bytes);

}  // namespace pp
