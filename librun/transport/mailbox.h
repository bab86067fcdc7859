// Control messages of any length between the processes of a run, and how a rank ends a run that another one
// has ended. Free of Torch.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/units.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// A rank is not there any more, as far as this one can tell.
class LostRank : public Error {
 public:
  using Error::Error;
};

class Mailbox {
 public:
  /// `peers` must outlive it. `patience`: with ranks that do not come to a gather.
  explicit Mailbox(Peers& peers, Seconds patience = std::chrono::minutes(10))
      : peers_(peers), patience_(patience) {}
  /// Waits for nobody: what has not been sent by then stays in memory, because the library may still read it.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  Peers& peers() const { return peers_; }
  Seconds patience() const { return patience_; }
  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }

  /// Any thread. Control messages to one rank arrive in the order in which they were posted.
  void post(int to, std::string bytes);
  /// To all other ranks.
  void post_all(const std::string& bytes);
  /// One thread at a time: the next whole control message that has come.
  std::optional<Peers::ControlMessage> take();
  /// The same thread: take() returns these next.
  void keep(std::deque<Peers::ControlMessage> control_messages) { kept_.swap(control_messages); }
  /// Returns when all that was posted has been sent, or after some seconds.
  void flush();

  /// To rank 0: why this one cannot go on.
  void post_failure(const std::string& why);

 private:
  struct Leaving {
    std::string bytes;
    std::unique_ptr<Posted> posted;
  };
  void forget_sent();

  Peers& peers_;
  Seconds patience_;
  std::map<int, std::string> begun_;  ///< per rank: the parts of a control message that is not whole
  std::deque<Peers::ControlMessage> kept_;
  std::mutex mutex_;  ///< of what follows
  std::list<Leaving> leaving_;
};

/// The first byte of a control message, which says what it is: before the run, or why a rank cannot go on.
/// Those of the run have others (drive/control_messages.h).
inline constexpr char kAtStart = 's', kFailed = 'f';

/// Control messages that ranks exchange before the run begins. Waiting for one blocks, on rank 0 for its
/// patience and on others for a little longer. Throws LostRank, which names the rank `awaited`, when none
/// comes, and pp::Error (run) when a rank has failed.
void post_at_start(Mailbox& mailbox, int to, const std::string& bytes);
Peers::ControlMessage await_at_start(Mailbox& mailbox, const std::function<int()>& awaited);

/// What every rank brings, in the order of the ranks; all of them call it. Throws as await_at_start() does.
std::vector<std::string> gather_everywhere(Mailbox& mailbox, std::string mine);

/// A run on several ranks cannot begin: all of them know.
class NotBegun : public Error {
 public:
  using Error::Error;
};
/// The run has failed, or cannot begin, and rank 0 says why.
class SaidElsewhere : public Error {
 public:
  SaidElsewhere(ErrorKind kind, const std::string& what, bool begun = true)
      : Error(kind, what), begun_(begun) {}
  bool begun() const { return begun_; }

 private:
  bool begun_;
};

}  // namespace pp::run
