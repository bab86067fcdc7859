#include "librun/transport/mailbox.h"

#include <algorithm>
#include <utility>

#include "librun/transport/coordinator.h"
#include "librun/transport/packed.h"

namespace pp::run {

namespace {

// A letter goes in parts of at most this size, each with a byte in front: whether it is the last one.
constexpr std::size_t kPart = std::size_t{1} << 28;

// Waits for one letter.
Peers::Letter next(Mailbox& mailbox) {
  for (int asked = 0;; ++asked) {
    if (auto letter = mailbox.take()) return std::move(*letter);
    Coordinator::pause(asked);
  }
}

}  // namespace

Mailbox::~Mailbox() {
  forget_sent();
  if (!leaving_.empty()) new std::list<Leaving>(std::move(leaving_));
}

void Mailbox::post(int to, std::string bytes) {
  const std::lock_guard held(mutex_);
  for (std::size_t first = 0; first == 0 || first < bytes.size(); first += kPart) {
    const std::size_t size = std::min(kPart, bytes.size() - first);
    Leaving& part = leaving_.emplace_back();
    part.bytes.reserve(size + 1);
    part.bytes.push_back(first + size == bytes.size() ? '\1' : '\0');
    part.bytes.append(bytes, first, size);
    part.posted = peers_.send_letter(to, std::as_bytes(std::span(part.bytes)));
  }
}

void Mailbox::post_all(const std::string& bytes) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != this->rank()) post(rank, bytes);
  }
}

std::optional<Peers::Letter> Mailbox::take() {
  forget_sent();
  while (std::optional<Peers::Letter> part = peers_.next_letter()) {
    std::string& whole = begun_[part->from];
    const bool last = part->bytes.front() == '\1';
    whole.append(part->bytes, 1);
    if (last) return Peers::Letter{part->from, std::exchange(whole, {})};
  }
  return std::nullopt;
}

bool Mailbox::sent() {
  forget_sent();
  const std::lock_guard held(mutex_);
  return leaving_.empty();
}

void Mailbox::forget_sent() {
  const std::lock_guard held(mutex_);
  std::erase_if(leaving_, [](Leaving& part) { return part.posted->done(); });
}

// A star: no rank has more than two messages, but for the first.
std::vector<std::string> gather_everywhere(Mailbox& mailbox, std::string mine) {
  std::vector<std::string> all(static_cast<std::size_t>(mailbox.size()));
  if (mailbox.rank() != 0) {
    mailbox.post(0, std::move(mine));
    const Peers::Letter letter = next(mailbox);
    Unpacker from(letter.bytes);
    for (std::string& one : all) from.read(one);
    return all;
  }
  all[0] = std::move(mine);
  for (int i = 1; i < mailbox.size(); ++i) {
    Peers::Letter letter = next(mailbox);
    all[static_cast<std::size_t>(letter.from)] = std::move(letter.bytes);
  }
  Packer packer;
  for (const std::string& one : all) packer.add(one);
  mailbox.post_all(packer.take());
  return all;
}

}  // namespace pp::run
