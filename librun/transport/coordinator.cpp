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

}  // namespace

Coordinator::Coordinator(int workers, Seconds stall_timeout)
    : stall_timeout_(std::min(stall_timeout, kForever)) {
  for (int i = 0; i < workers; ++i) slots_.push_back(std::make_unique<Slot>());
}

void Coordinator::announce(WorkerId worker, const std::optional<plan::Op>& op) {
  const Lock held = lock();
  slots_[index(worker)]->op = op;
  ++progress_;
}

void Coordinator::wait(Lock& lock, WorkerId worker, const std::function<bool()>& ready,
                       const std::function<std::string()>& what) {
  Slot& slot = *slots_[index(worker)];
  const auto slice = std::chrono::duration_cast<Clock::duration>(stall_timeout_ / kSlices);
  std::uint64_t seen = progress_;
  for (int idle = 0; !ready() || stopped_;) {
    if (stopped_) throw Stopped{};
    if (idle == kSlices) throw Error(ErrorKind::run, stall_report());
    if (slot.waiting_for.empty()) slot.waiting_for = what();
    const bool slept = slot.condition.wait_for(lock, slice) == std::cv_status::timeout;
    idle = progress_ != seen ? 0 : idle + (slept ? 1 : 0);
    seen = progress_;
  }
  slot.waiting_for.clear();
}

void Coordinator::wait_driver(Lock& lock, const std::function<bool()>& ready) {
  driver_.wait(lock, [&] { return stopped_ || ready(); });
  if (stopped_) throw Stopped{};
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
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = *slots_[i];
    report += "\n  worker " + std::to_string(i) + ": ";
    report += slot.op ? plan::to_text(*slot.op) : "between steps";
    report += slot.waiting_for.empty() ? ", running" : ", waits for " + slot.waiting_for;
  }
  return report;
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
