#include "librun/transport/coordinator.h"

#include <algorithm>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

// A clock that counts nanoseconds in 64 bits overflows after 292 years; a few years are as good as never.
constexpr Seconds kForever{1e8};
// The timeout is waited for in slices: a process that was suspended finds one slice over when it wakes up, not
// all.
constexpr int kSlices = 4;
constexpr Seconds kPoll{0.05};

}  // namespace

// Looks at the run after each slice of a wait, with the lock held.
class Coordinator::Watch {
 public:
  /// A stall: `most` slices in which nothing moved.
  Watch(const Coordinator& run, double most) : run_(run), most_(most), seen_(run.progress_) {}

  bool stalled() const { return idle_ >= most_; }
  void look(std::cv_status status) {
    const bool moved = run_.progress_ != seen_ || run_.respites_ > 0;
    idle_ = moved ? 0 : idle_ + (status == std::cv_status::timeout ? 1 : 0);
    seen_ = run_.progress_;
  }

 private:
  const Coordinator& run_;
  double most_;
  std::uint64_t seen_;
  double idle_ = 0;
};

Coordinator::Coordinator(int workers, Seconds stall_timeout)
    : stall_timeout_(std::min(stall_timeout, kForever)) {
  for (int i = 0; i < workers; ++i) slots_.push_back(std::make_unique<Slot>());
}

void Coordinator::announce(WorkerId worker, const std::optional<plan::Op>& op) {
  const Lock held = lock();
  if (stopped_) throw Stopped{};
  slots_[index(worker)]->op = op;
  ++progress_;
}

void Coordinator::wait(Lock& lock, WorkerId worker, const std::function<bool()>& ready,
                       const std::function<std::string()>& what) {
  Slot& slot = *slots_[index(worker)];
  const auto slice = std::chrono::duration_cast<Clock::duration>(stall_timeout_ / kSlices);
  for (Watch watch(*this, kSlices); !ready() || stopped_;) {
    if (stopped_) throw Stopped{};
    if (watch.stalled()) throw Error(ErrorKind::run, stall_report());
    if (slot.waiting_for.empty()) slot.waiting_for = what();
    watch.look(slot.condition.wait_for(lock, slice));
  }
  slot.waiting_for.clear();
}

bool Coordinator::wait_driver(Lock& lock, const std::function<bool()>& ready,
                              const std::function<bool()>& give_up) {
  const Seconds slice = std::min(kPoll, stall_timeout_ / kSlices);
  for (Watch watch(*this, stall_timeout_ / slice);;) {
    lock.unlock();
    const bool enough = give_up();
    lock.lock();
    if (stopped_) throw Stopped{};
    if (ready()) return true;
    if (enough) return false;
    if (watch.stalled() && nobody_waits()) throw Error(ErrorKind::run, stall_report());
    watch.look(driver_.wait_for(lock, std::chrono::duration_cast<Clock::duration>(slice)));
  }
}

bool Coordinator::nobody_waits() const {
  return slots_.size() > 1 && std::ranges::all_of(slots_, [](const auto& s) { return s->waiting_for.empty(); });
}

void Coordinator::notify_all() {
  for (const auto& slot : slots_) slot->condition.notify_all();
}

void Coordinator::stop(std::exception_ptr error) {
  const Lock held = lock();
  if (!error_) error_ = std::move(error);
  stopped_ = true;
  notify_all();
  driver_.notify_all();
}

std::exception_ptr Coordinator::error() {
  const Lock held = lock();
  return error_;
}

std::string Coordinator::stall_report() const {
  std::string report = "stalled: no operation has ended for " + to_text(stall_timeout_) +
                       "; raise the stall timeout if single operations take that long";
  for (std::size_t i = 0; i < slots_.size(); ++i) report += "\n  " + describe(i);
  return report;
}

std::string Coordinator::describe(std::size_t worker) const {
  const Slot& slot = *slots_[worker];
  return "worker " + std::to_string(worker) + ": " + (slot.op ? plan::to_text(*slot.op) : "between steps") +
         (slot.waiting_for.empty() ? ", running" : ", waits for " + slot.waiting_for);
}

std::string Coordinator::state_of(WorkerId worker) {
  const Lock held = lock();
  return describe(index(worker));
}

Respite::Respite(Coordinator& coordinator) : coordinator_(coordinator) {
  const Coordinator::Lock held = coordinator_.lock();
  ++coordinator_.respites_;
}

Respite::~Respite() {
  const Coordinator::Lock held = coordinator_.lock();
  --coordinator_.respites_;
  ++coordinator_.progress_;
}

Barrier::Barrier(Coordinator& coordinator, std::vector<WorkerId> members)
    : coordinator_(coordinator), members_(std::move(members)) {}

void Barrier::arrive_and_wait(WorkerId worker, const std::string& what) {
  Coordinator::Lock lock = coordinator_.lock();
  if (++arrived_ == members_.size()) {
    arrived_ = 0;
    ++generation_;
    lock.unlock();
    for (const WorkerId member : members_) coordinator_.notify(member);
    return;
  }
  const long mine = generation_;
  coordinator_.wait(
      lock, worker, [&] { return generation_ != mine; }, [&] { return what; });
}

}  // namespace pp::run
