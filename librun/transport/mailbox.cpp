#include "librun/transport/mailbox.h"

#include <algorithm>
#include <set>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/packed.h"
#include "librun/transport/peers.h"

namespace pp::run {

namespace {

// A control message goes in parts of at most this size, each with a byte in front: whether it is the last one.
constexpr std::size_t kPart = std::size_t{1} << 28;

constexpr std::chrono::seconds kMostFlush(5);

}  // namespace

Mailbox::~Mailbox() {
  forget_sent();
  if (!leaving_.empty()) leave_to_library(std::make_shared<std::list<Leaving>>(std::move(leaving_)));
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

std::optional<Peers::ControlMessage> Mailbox::take() {
  forget_sent();
  if (!kept_.empty()) {
    Peers::ControlMessage first = std::move(kept_.front());
    kept_.pop_front();
    return first;
  }
  while (std::optional<Peers::ControlMessage> part = peers_.next_control_message()) {
    std::string& whole = begun_[part->from];
    const bool last = part->bytes.front() == '\1';
    whole.append(part->bytes, 1);
    if (last) return Peers::ControlMessage{part->from, std::exchange(whole, {})};
  }
  return std::nullopt;
}

void Mailbox::flush() {
  const auto begin = Coordinator::Clock::now();
  const auto sent = [&] {
    forget_sent();
    const std::lock_guard held(mutex_);
    return leaving_.empty();
  };
  for (int asked = 0; !sent() && Coordinator::Clock::now() - begin < kMostFlush; ++asked)
    Coordinator::pause(asked);
}

void Mailbox::post_failure(const std::string& why) { post(0, Packer().add(kFailed).add(why).take()); }

void Mailbox::forget_sent() {
  const std::lock_guard held(mutex_);
  std::erase_if(leaving_, [](Leaving& part) { return part.posted->done(); });
}

void post_at_start(Mailbox& mailbox, int to, const std::string& bytes) { mailbox.post(to, kAtStart + bytes); }

// Rank 0 speaks first, then one after the other.
Peers::ControlMessage await_at_start(Mailbox& mailbox, const std::function<int()>& awaited) {
  const Seconds patience =
      mailbox.patience() * (mailbox.rank() == 0 ? 1 : 1.2 + 0.1 * std::min(mailbox.rank(), 8));
  const auto begin = Coordinator::Clock::now();
  std::deque<Peers::ControlMessage> early;  // of a rank whose run has begun
  for (int asked = 0; Coordinator::Clock::now() - begin < patience; ++asked) {
    auto control = mailbox.take();
    if (!control) {
      Coordinator::pause(asked);
      continue;
    }
    std::string text = control->bytes.substr(1);
    if (control->bytes.front() == kFailed)
      throw Error(ErrorKind::run,
                  "rank " + std::to_string(control->from) + ": " + Unpacker(text).take<std::string>());
    if (control->bytes.front() != kAtStart) {
      early.push_back(*std::move(control));
      continue;
    }
    mailbox.keep(std::move(early));
    return {control->from, std::move(text)};
  }
  throw LostRank(ErrorKind::run, "rank " + std::to_string(awaited()) + " has not begun for " +
                                     to_text(mailbox.patience()) +
                                     ": it hangs, was stopped, or cannot be reached; look at its host");
}

// A star: no rank has more than two messages, but for the first.
std::vector<std::string> gather_everywhere(Mailbox& mailbox, std::string mine) {
  std::vector<std::string> all(static_cast<std::size_t>(mailbox.size()));
  if (mailbox.rank() != 0) {
    post_at_start(mailbox, 0, mine);
    const Peers::ControlMessage control = await_at_start(mailbox, [] { return 0; });
    Unpacker from(control.bytes);
    for (std::string& one : all) from.read(one);
    return all;
  }
  all[0] = std::move(mine);
  std::set<int> awaited;
  for (int rank = 1; rank < mailbox.size(); ++rank) awaited.insert(rank);
  while (!awaited.empty()) {
    Peers::ControlMessage control = await_at_start(mailbox, [&] { return *awaited.begin(); });
    awaited.erase(control.from);
    all[static_cast<std::size_t>(control.from)] = std::move(control.bytes);
  }
  Packer packer;
  for (const std::string& one : all) packer.add(one);
  const std::string bytes = packer.take();
  for (int rank = 1; rank < mailbox.size(); ++rank) post_at_start(mailbox, rank, bytes);
  return all;
}

}  // namespace pp::run
