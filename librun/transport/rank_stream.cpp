#include "librun/transport/rank_stream.h"

#include <span>
#include <utility>

#include "librun/threads/coordinator.h"
#include "librun/transport/left_to_library.h"

namespace pp::run {

RankStream::RankStream(Peers& peers, int other, int tag, std::function<void()> look)
    : peers_(peers),
      address_{.lane = Peers::Lane::copies, .rank = other, .tag = tag},
      look_(std::move(look)),
      way_(std::make_unique<Way>()) {}

RankStream::~RankStream() {
  if (way_->posted && !way_->posted->done()) leave_to_library(std::move(way_));
}

void RankStream::await() {
  for (int asked = 0; !way_->posted->done(); ++asked) {
    look_();
    Coordinator::pause(asked);
  }
}

void RankStream::send_message(std::string_view bytes) {
  way_->bytes = bytes;
  way_->posted = peers_.send(address_, std::as_bytes(std::span(way_->bytes)), kRoom, Peers::Sent::gone);
  await();
}

std::string_view RankStream::receive_message() {
  way_->bytes.resize(kRoom);
  way_->posted = peers_.receive(address_, std::as_writable_bytes(std::span(way_->bytes)));
  await();
  return std::string_view(way_->bytes).substr(0, way_->posted->bytes());
}

void RankStream::send(std::string_view text) {
  for (; text.size() >= kRoom; text.remove_prefix(kRoom)) send_message(text.substr(0, kRoom));
  send_message(text);
}

std::string RankStream::receive() {
  std::string text;
  for (;;) {
    const std::string_view bytes = receive_message();
    text += bytes;
    if (bytes.size() < kRoom) return text;
  }
}

}  // namespace pp::run
