// How a replica's requests travel to a server on another rank, and the answers back. A request is one message:
// a head, and behind it what is pushed. To begin and to leave are answered, with the weights where they are
// fetched, else with an empty message; nothing waits for what is pushed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "librun/transport/peers.h"

namespace pp::run {

struct RequestHead {
  enum class Kind : std::int32_t { begin, finish, leave, close };
  Kind kind = Kind::begin;
  bool fetches = false;
  bool pushes = false;
  double rate = 0;
};

/// In front of the vector, whose elements stay aligned.
inline constexpr std::size_t kHeadBytes = 64;
static_assert(sizeof(RequestHead) <= kHeadBytes);

/// Room for a request that pushes a vector like `weights` ([n], may be undefined): the head's bytes, then the
/// vector.
class RequestRoom {
 public:
  explicit RequestRoom(const at::Tensor& weights);

  /// Bytes of a request, of the largest one by default.
  std::span<std::byte> bytes() const;
  std::span<std::byte> bytes(const RequestHead& head) const;
  /// [n]; undefined where the weights are.
  const at::Tensor& vector() const { return vector_; }

  RequestHead head() const;
  void set_head(const RequestHead& head) const;

 private:
  at::Tensor all_, vector_;
};

inline Peers::Address request_address(int rank, int replica) {
  return {Peers::Lane::server, rank, 2 * replica};
}
inline Peers::Address answer_address(int rank, int replica) {
  return {Peers::Lane::server, rank, 2 * replica + 1};
}

}  // namespace pp::run
