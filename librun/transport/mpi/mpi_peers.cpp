// Messages over MPI. Every call but join() is short and never blocks, and calls are made one at a time under a
// lock: so the library need only allow threads in turn, and whoever waits for a message moves all others on,
// too.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <fstream>
#include <list>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "librun/transport/mpi/session.h"
#include "librun/transport/peers.h"
#include "librun/transport/placement.h"

namespace pp::run {

namespace {

// Counts are ints: a longer message goes in parts, all but the last one of this size.
constexpr std::size_t kPart = std::size_t{1} << 30;

// Up to this size libraries hand a message over at once, whatever the other rank does (Open MPI in shared
// memory; more over a network).
constexpr std::size_t kAtOnce = 4096;

std::size_t count_parts(std::size_t room) { return std::max<std::size_t>(1, (room + kPart - 1) / kPart); }

class MpiPosted;

// What all calls share. Who asks for a message in a loop gives way to who has something to send or to look for:
// the lock would be taken again before the other is awake.
class Calls {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// One call at a time.
  Lock lock() {
    ++waiting_;
    Lock held(mutex_);
    --waiting_;
    return held;
  }
  /// For who asks again. Owns nothing where others call, who move on all messages, too.
  Lock lock_to_ask() { return waiting_ > 0 ? Lock() : Lock(mutex_, std::try_to_lock); }

  std::vector<MpiPosted*> sends;       ///< that are followed and under way; under the lock
  std::atomic<bool> following{false};  ///< there are some

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_ = 0;
};

class MpiPosted final : public Posted {
 public:
  MpiPosted(Calls& calls, std::size_t parts) : calls_(calls), left_(static_cast<int>(parts)) {
    if (parts > 1) requests_.resize(parts, MPI_REQUEST_NULL);
  }
  ~MpiPosted() override {
    if (!followed_) return;
    const Calls::Lock held = calls_.lock();
    std::erase(calls_.sends, this);
    calls_.following = !calls_.sends.empty();
  }

  MPI_Request& part(std::size_t i) { return parts()[i]; }
  std::span<MPI_Request> parts() { return requests_.empty() ? std::span(&only_, 1) : std::span(requests_); }

  bool done() override {
    const Calls::Lock held = calls_.lock_to_ask();
    return held && test();
  }
  std::size_t bytes() const override { return bytes_; }

  // The following under the lock.
  bool test() {
    for (MPI_Request& request : parts()) {
      if (request == MPI_REQUEST_NULL) continue;
      int flag = 0;
      MPI_Status status;
      MPI_Test(&request, &flag, &status);
      if (flag == 0) return false;
      end_part(status);
    }
    return ended();
  }
  bool ended() const { return left_ == 0; }
  void end_part(const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    bytes_ += static_cast<std::size_t>(std::max(0, count));
    --left_;
  }
  // Moved on by whoever asks for what is being sent.
  void follow() {
    if (test()) return;
    calls_.sends.push_back(this);
    calls_.following = followed_ = true;
  }

 private:
  Calls& calls_;
  int left_;  ///< parts under way
  MPI_Request only_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> requests_;  ///< of several parts
  bool followed_ = false;
  std::size_t bytes_ = 0;
};

// Asks for all requests of several messages with one call.
class SomeRequests {
 public:
  /// Returns when those that are done by now are ended.
  void test(const std::vector<MpiPosted*>& messages) {
    requests_.clear();
    for (MpiPosted* message : messages)
      requests_.insert(requests_.end(), message->parts().begin(), message->parts().end());
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                 statuses_.data());
    if (count == MPI_UNDEFINED || count == 0) return;
    write_back(messages, static_cast<std::size_t>(count));
  }

 private:
  // Ended requests are null by now.
  void write_back(const std::vector<MpiPosted*>& messages, std::size_t count) {
    owners_.clear();
    std::size_t next = 0;
    for (MpiPosted* message : messages) {
      for (MPI_Request& request : message->parts()) {
        request = requests_[next++];
        owners_.push_back(message);
      }
    }
    for (std::size_t i = 0; i < count; ++i)
      owners_[static_cast<std::size_t>(indices_[i])]->end_part(statuses_[i]);
  }

  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<MpiPosted*> owners_;  ///< per request
};

class MpiPeers final : private MpiSession, public Peers {
 public:
  MpiPeers(std::string me, Seconds patience)
      : MpiSession(std::move(me), patience), Peers(MpiSession::rank(), MpiSession::size()) {
    for (MPI_Comm& lane : lanes_) MPI_Comm_dup(MPI_COMM_WORLD, &lane);
    host_ = find_host();
    int found = 0;
    int* bound = nullptr;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    if (found != 0) largest_tag_ = *bound;
  }
  ~MpiPeers() override {
    for (MPI_Comm& lane : lanes_) MPI_Comm_free(&lane);
    for (MPI_Comm& group : groups_) MPI_Comm_free(&group);
  }
  using Peers::rank;
  using Peers::size;

  int largest_tag() const override { return largest_tag_; }

  std::unique_ptr<Posted> send(const Address& to, std::span<const std::byte> bytes, std::size_t room,
                               Sent sent) override {
    auto posted = std::make_unique<MpiPosted>(calls_, count_parts(room));
    const auto call = sent == Sent::taken ? MPI_Issend : MPI_Isend;
    const Calls::Lock held = calls_.lock();
    for (std::size_t i = 0; i < count_parts(room); ++i) {
      const auto part = bytes.subspan(std::min(i * kPart, bytes.size()));
      call(part.data(), count_of(part.size()), MPI_BYTE, to.rank, to.tag, comm(to.lane), &posted->part(i));
    }
    if (bytes.size() > kAtOnce) posted->follow();
    return posted;
  }

  std::unique_ptr<Posted> receive(const Address& from, std::span<std::byte> room) override {
    auto posted = std::make_unique<MpiPosted>(calls_, count_parts(room.size()));
    const Calls::Lock held = calls_.lock();
    for (std::size_t i = 0; i < count_parts(room.size()); ++i) {
      const auto part = room.subspan(i * kPart);
      MPI_Irecv(part.data(), count_of(part.size()), MPI_BYTE, from.rank, from.tag, comm(from.lane),
                &posted->part(i));
    }
    return posted;
  }

  std::unique_ptr<Posted> send_letter(int to, std::span<const std::byte> bytes) override {
    auto posted = std::make_unique<MpiPosted>(calls_, 1);
    const Calls::Lock held = calls_.lock();
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 0, lanes_[kLetters],
              &posted->part(0));
    if (bytes.size() > kAtOnce) posted->follow();
    return posted;
  }

  std::string host() const override { return host_; }

  std::optional<ControlMessage> next_control_message() override {
    if (whole_.empty()) look_for_letters();
    if (whole_.empty()) return std::nullopt;
    ControlMessage control = std::move(whole_.front());
    whole_.pop_front();
    return control;
  }

  int join(std::span<const int> ranks) override {
    const Calls::Lock held = calls_.lock();
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, /*tag=*/0, &groups_.emplace_back(MPI_COMM_NULL));
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return static_cast<int>(groups_.size()) - 1;
  }

  std::unique_ptr<Posted> sum(int group, std::span<std::byte> elements, Element type) override {
    const std::size_t size = type == Element::float64 ? sizeof(double) : sizeof(float);
    auto posted = std::make_unique<MpiPosted>(calls_, count_parts(elements.size()));
    const Calls::Lock held = calls_.lock();
    for (std::size_t i = 0; i < count_parts(elements.size()); ++i) {
      const auto part = elements.subspan(i * kPart);
      MPI_Iallreduce(MPI_IN_PLACE, part.data(), count_of(part.size()) / static_cast<int>(size),
                     type == Element::float64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM,
                     groups_[static_cast<std::size_t>(group)], &posted->part(i));
    }
    return posted;
  }

  bool sending() override {
    if (!calls_.following) return false;
    const Calls::Lock held = calls_.lock();
    some_.test(calls_.sends);
    std::erase_if(calls_.sends, [](const MpiPosted* posted) { return posted->ended(); });
    return calls_.following = !calls_.sends.empty();
  }

  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::abort();
  }

 private:
  static constexpr std::size_t kLetters = kLanes;  // behind the lanes

  /// A control message that is being received; stays where it is, because the library writes into it.
  struct Coming {
    ControlMessage control;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  static std::string find_host() {
    struct Identity {
      std::array<char, 256> name{};
      std::array<char, 64> boot{};  // of the kernel that runs
    } mine;
    gethostname(mine.name.data(), mine.name.size() - 1);
    std::ifstream("/proc/sys/kernel/random/boot_id").getline(mine.boot.data(), mine.boot.size());
    std::vector<Identity> all(static_cast<std::size_t>(MpiSession::size()));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    std::vector<HostIdentity> identities;
    for (const Identity& one : all) identities.push_back({one.name.data(), one.boot.data()});
    return names_of_hosts(identities)[static_cast<std::size_t>(MpiSession::rank())];
  }

  // Takes all that have come whole, those of one rank in their order.
  void look_for_letters() {
    const Calls::Lock held = calls_.lock();
    while (begin_letter()) {
    }
    std::set<int> unfinished;  // ranks with an earlier control message that has not come whole
    for (auto coming = coming_.begin(); coming != coming_.end();) {
      const int from = coming->control.from;
      int whole = 0;
      if (!unfinished.contains(from)) MPI_Test(&coming->request, &whole, MPI_STATUS_IGNORE);
      if (whole == 0) {
        unfinished.insert(from);
        ++coming;
        continue;
      }
      whole_.push_back(std::move(coming->control));
      coming = coming_.erase(coming);
    }
  }

  // Receives the next control message that has been announced, if there is one. A large one takes its time, in
  // which the lock is free.
  bool begin_letter() {
    int found = 0, count = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, 0, lanes_[kLetters], &found, &message, &status);
    if (found == 0) return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    Coming& coming = coming_.emplace_back();
    coming.control = {status.MPI_SOURCE, std::string(static_cast<std::size_t>(count), '\0')};
    MPI_Imrecv(coming.control.bytes.data(), count, MPI_BYTE, &message, &coming.request);
    return true;
  }

  static int count_of(std::size_t rest) { return static_cast<int>(std::min(rest, kPart)); }
  MPI_Comm comm(Lane lane) const { return lanes_[static_cast<std::size_t>(lane)]; }

  Calls calls_;
  SomeRequests some_;  ///< under the lock
  std::array<MPI_Comm, kLetters + 1> lanes_{};
  std::vector<MPI_Comm> groups_;
  std::list<Coming> coming_;          ///< in the order in which they were announced
  std::deque<ControlMessage> whole_;  ///< of who takes them, alone
  std::string host_;
  int largest_tag_ = 32767;  // what every library has
};

}  // namespace

std::unique_ptr<Peers> join_mpi_peers(std::string me, Seconds patience) {
  return std::make_unique<MpiPeers>(std::move(me), patience);
}

}  // namespace pp::run
