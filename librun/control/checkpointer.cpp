#include "librun/control/checkpointer.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>

namespace pp::run {

namespace {

// How many stall timeouts files may take to be written: a large one that is flushed takes longer than an
// operation, a disk that does not answer takes for ever.
constexpr int kWritingPatience = 10;
constexpr std::chrono::milliseconds kWait(20);

// A phase that ends by itself after `most`, so that the watchdog sees who waits for it.
class BoundedPhase {
 public:
  BoundedPhase(Coordinator& run, Seconds most) : phase_(std::in_place, run) {
    thread_.add([this, most] {
      std::unique_lock held(mutex_);
      if (!over_.wait_for(held, most, [this] { return ended_; })) phase_.reset();
    });
  }
  ~BoundedPhase() {
    {
      const std::lock_guard held(mutex_);
      ended_ = true;
    }
    over_.notify_one();
  }
  BoundedPhase(const BoundedPhase&) = delete;
  BoundedPhase& operator=(const BoundedPhase&) = delete;

 private:
  std::optional<Phase> phase_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  Threads thread_;
};

}  // namespace

Checkpointer::Checkpointer(Coordinator& run, const plan::Plan& plan, const RunOptions& options,
                           const Setup& setup, std::size_t workers, std::unique_ptr<SavedFiles> files)
    : run_(run),
      plan_(plan),
      options_(options),
      setup_(setup),
      workers_(workers),
      files_(std::move(files)),
      monitor_(run),
      saved_(setup.start.position.step) {
  thread_.add([this] { serve(); });
}

Checkpointer::~Checkpointer() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  monitor_.notify();
  thread_.join();
}

void Checkpointer::begin(WorkerId worker, Step step, bool last) {
  Monitor::Lock lock = monitor_.lock();
  const Key key{step, last};
  monitor_.wait(
      lock, worker, [&] { return entries_.empty() || entries_.begin()->first >= key; },
      [] { return "the last checkpoint to be written"; });
  if (!begun_) begun_ = Coordinator::Clock::now();
}

void Checkpointer::add(Step step, bool last, std::vector<Stage::LayerState> layers, Seconds pause) {
  const Monitor::Lock lock = monitor_.lock();
  Entry& entry = entries_[{step, last}];
  std::ranges::move(layers, std::back_inserter(entry.layers));
  entry.pause = std::max(entry.pause, pause);
  ++entry.workers;
  if (complete()) monitor_.notify();
}

void Checkpointer::reached(Step step, const Position& position) {
  const Monitor::Lock lock = monitor_.lock();
  positions_[step] = position;
  monitor_.notify();
}

void Checkpointer::await_written(int count) {
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait_driver(
      lock, [&] { return written_ >= count; }, [] { return false; });
}

bool Checkpointer::made_between(Time from, Time to) {
  const Monitor::Lock lock = monitor_.lock();
  return (begun_ && *begun_ < to) || (last_ && last_->begin < to && from < last_->end);
}

std::vector<std::string> Checkpointer::failures() {
  const Monitor::Lock lock = monitor_.lock();
  return failures_;
}

void Checkpointer::fail(std::string why) {
  const Monitor::Lock lock = monitor_.lock();
  failures_.push_back(std::move(why));
}

void Checkpointer::enter(int rank, CheckpointShare share) {
  const Monitor::Lock lock = monitor_.lock();
  entries_[{share.step, share.last}].shares.emplace(rank, std::move(share));
  monitor_.notify();
}

// A clock that counts nanoseconds overflows after 292 years.
Seconds Checkpointer::patience() const {
  return std::min(options_.stall_timeout, Seconds(1e7)) * kWritingPatience;
}

bool Checkpointer::written_within() const {
  const Time begin = Coordinator::Clock::now();
  while (writing_ && Coordinator::Clock::now() - begin < patience()) std::this_thread::sleep_for(kWait);
  return !writing_;
}

bool Checkpointer::complete() const {
  return !entries_.empty() && entries_.begin()->second.workers == workers_ &&
         positions_.contains(entries_.begin()->first.first);
}

std::optional<Checkpointer::Snapshot> Checkpointer::take() {
  Monitor::Lock lock = monitor_.lock();
  const auto closed = [&] {
    const Monitor::Lock held = monitor_.lock();
    return closed_;
  };
  if (!monitor_.wait_driver(
          lock, [&] { return complete(); }, closed))
    return std::nullopt;
  auto& [key, entry] = *entries_.begin();
  positions_.erase(positions_.begin(), positions_.find(key.first));
  Snapshot snapshot{key, positions_.at(key.first), std::exchange(entry.layers, {}), entry.pause};
  std::ranges::sort(snapshot.layers, {},
                    [](const Stage::LayerState& s) { return std::pair(s.layer, s.owner); });
  return snapshot;
}

std::vector<CheckpointShare> Checkpointer::await_shares(Key key) {
  Monitor::Lock lock = monitor_.lock();
  std::map<int, CheckpointShare>& by_rank = entries_[key].shares;
  const auto others = static_cast<std::size_t>(setup_.placement.ranks - 1);
  monitor_.wait_driver(
      lock, [&] { return by_rank.size() == others; }, [] { return false; });
  std::vector<CheckpointShare> shares;
  for (auto& [rank, share] : by_rank) shares.push_back(std::move(share));
  return shares;
}

void Checkpointer::note_written() {
  const Monitor::Lock lock = monitor_.lock();
  entries_.erase(entries_.begin());
  ++written_;
  last_ = {*std::exchange(begun_, std::nullopt), Coordinator::Clock::now()};
  monitor_.notify();
}

void Checkpointer::write(Snapshot snapshot) {
  const Key key = snapshot.key;
  const Position position = snapshot.position;
  CheckpointShare mine = write_share(std::move(snapshot));
  if (post_) return post_(std::move(mine));
  std::vector<CheckpointShare> shares = await_shares(key);
  shares.insert(shares.begin(), std::move(mine));
  save(position, std::move(shares));
}

void Checkpointer::serve() noexcept {
  try {
    while (std::optional<Snapshot> snapshot = take()) {
      const BoundedPhase phase(run_, patience());
      writing_ = true;
      write(std::move(*snapshot));
      writing_ = false;
      note_written();
    }
  } catch (const Stopped&) {
  } catch (...) {
    run_.stop(std::current_exception());
  }
  writing_ = false;
}

}  // namespace pp::run
