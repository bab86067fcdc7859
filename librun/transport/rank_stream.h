// Bytes of any length from one rank to another, beside tensors and control messages. Free of Torch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "librun/transport/peers.h"

namespace pp::run {

/// One direction of one address (Lane::copies), used by one thread. Bytes go in messages of kRoom, of which the
/// last one is shorter, maybe empty.
class RankStream {
 public:
  static constexpr std::size_t kRoom = std::size_t{1} << 20;

  /// `peers` must outlive it. `look` is called while it waits, and throws when there is nothing to wait for any
  /// more.
  RankStream(Peers& peers, int other, int tag, std::function<void()> look);
  /// Waits for nobody: what is under way then stays in memory, because the library may still use it.
  ~RankStream();
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  /// At most kRoom; fewer end the text.
  void send_message(std::string_view bytes);
  /// Valid until the next one.
  std::string_view receive_message();

  void send(std::string_view text);
  std::string receive();

 private:
  struct Way {
    std::string bytes;
    std::unique_ptr<Posted> posted;
  };
  void await();

  Peers& peers_;
  Peers::Address address_;
  std::function<void()> look_;
  std::unique_ptr<Way> way_;
};

}  // namespace pp::run
