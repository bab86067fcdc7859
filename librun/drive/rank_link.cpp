#include "librun/drive/rank_link.h"
#include "librun/transport/mailbox.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

namespace pp::run {

namespace {

constexpr int kBranches = 8;                    // ranks that one passes orders on to
constexpr int kGroup = 8;                       // round trips at the end, of which the shortest tells the time
constexpr std::chrono::milliseconds kAwake(2);  // who asks for the time soon asks again

// Of a record, with(time) in place of each time of the run.
template <class With>
void change_times(WorkerRecord& record, With&& with) {
  const auto change = [&](auto& event) {
    event.start = with(event.start);
    event.end = with(event.end);
  };
  for (OpRecord& op : record.ops) change(op.event);
  for (MessageRecord& message : record.messages) change(message.event);
}

std::string kind_alone(ControlKind kind) { return Packer().add(kind).take(); }

}  // namespace

RankLink::RankLink(Job& job, Mailbox& mailbox)
    : job_(job),
      mailbox_(mailbox),
      monitor_(job.coordinator),
      clock_(job.setup.clock),
      heard_(static_cast<std::size_t>(mailbox.size())),
      elsewhere_(heard_.size(), {.progress = 0, .in_phase = true}),
      looked_(Coordinator::Clock::now()) {
  elsewhere_[static_cast<std::size_t>(mailbox.rank())] = {};
  if (leads()) {
    post_down(Packer().add(ControlKind::start).add(job_.start).take());
    job_.commands.mirror([this](const Order& order) { post_down(pack(order)); });
  } else {
    job_.ledger.relay(job_.updates_together(), [this](LedgerEntry entry) {
      const LedgerEntry said = by_first_clock(std::move(entry));
      mailbox_.post(0, pack(said, first_start_));
    });
    if (job_.checkpointer)
      job_.checkpointer->relay([this](CheckpointShare share) { mailbox_.post(0, pack(std::move(share))); });
  }
  thread_.add([this] { serve(); });
}

void RankLink::post_down(const std::string& bytes) {
  const int first = kBranches * mailbox_.rank() + 1;
  for (int rank = first; rank < std::min(first + kBranches, mailbox_.size()); ++rank)
    mailbox_.post(rank, bytes);
}

void RankLink::ask() {
  const Time now = Coordinator::Clock::now();
  asked_ = now;
  mailbox_.post(0, Packer().add(ControlKind::ask).add(now).take());
}

void RankLink::read_time(Unpacker& control, Time now) {
  const auto asked = control.take<Time>();
  const auto there = control.take<Time>();
  const Monitor::Lock lock = monitor_.lock();
  if (--round_trips_ > 0) ask();
  const std::lock_guard held(clock_mutex_);
  clock_->add(asked, there, now);
  if (round_trips_ > 0) return;
  clock_->close_group();
  monitor_.notify();
}

Seconds RankLink::common(Seconds here) const {
  const std::lock_guard held(clock_mutex_);
  const Time time = job_.start + std::chrono::duration_cast<Time::duration>(here);
  return clock_ ? clock_->there(time) - first_start_ : here;
}

LedgerEntry RankLink::by_first_clock(LedgerEntry entry) const {
  if (!clock_) return entry;
  for (LedgerEntry::Update& update : entry.updates) {
    if (update.figures.begin < Seconds::max()) update.figures.begin = common(update.figures.begin);
    update.end = first_start_ + std::chrono::duration_cast<Time::duration>(common(update.end - job_.start));
  }
  return entry;
}

void RankLink::pause(std::chrono::microseconds rest) const {
  if (Coordinator::Clock::now() - asked_.load() < kAwake) return std::this_thread::yield();
  std::this_thread::sleep_for(rest);
}

RankLink::~RankLink() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  thread_.join();
  if (job_.coordinator.stopped()) say_failure();
  mailbox_.flush();
}

void RankLink::serve() noexcept {
  try {
    for (auto rest = kShortestRest;; rest = std::min(2 * rest, kLongestRest)) {
      {
        const Monitor::Lock lock = monitor_.lock();
        if (closed_) return;
      }
      if (mailbox_.peers().sending()) rest = kShortestRest;
      while (auto control = mailbox_.take()) {
        handle(std::move(*control));
        if (job_.setup.streams) rest = kShortestRest;  // whose steps are granted one by one
      }
      const Time now = Coordinator::Clock::now();
      if (now - last_pulse_ > interval()) {
        last_pulse_ = now;
        send_pulse();
        check_silence(now);
        job_.check_devices();
      }
      if (job_.coordinator.stopped()) {
        say_failure();
        job_.give_up_devices();
      }
      pause(rest);
    }
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
  }
}

// So often that a rank is not silent by accident.
Seconds RankLink::interval() const { return std::min(job_.options.stall_timeout / 20, Seconds(1)); }

void RankLink::handle(Peers::ControlMessage control) {
  if (leads() || control.from == 0)  // others pass on what rank 0 says, and no signs of life
    heard_[static_cast<std::size_t>(control.from)] = Coordinator::Clock::now();
  Unpacker from(control.bytes);
  const auto set = [&](bool& flag) {
    {
      const Monitor::Lock lock = monitor_.lock();
      flag = true;
    }
    monitor_.notify();
  };
  switch (from.take<ControlKind>()) {
    case ControlKind::start: {
      post_down(control.bytes);
      const std::lock_guard held(clock_mutex_);
      first_start_ = from.take<Time>();
      job_.start = clock_ ? Coordinator::Clock::now() : first_start_;
      return;
    }
    case ControlKind::ask: {
      asked_ = Coordinator::Clock::now();
      Packer answer = std::move(Packer().add(ControlKind::time).add(from.take<Time>()));
      return mailbox_.post(control.from, answer.add(Coordinator::Clock::now()).take());
    }
    case ControlKind::time: return read_time(from, Coordinator::Clock::now());
    case ControlKind::order: {
      post_down(control.bytes);
      const Order order = unpack_order(from);
      if (order.command.kind == Command::Kind::snapshot) job_.checkpointer->reached(order.command.step, {});
      job_.commands.apply(order);
      if (order.kind == Order::Kind::append && order.command.kind == Command::Kind::stop) set(stopping_);
      return;
    }
    case ControlKind::end: return set(left_);
    case ControlKind::entry: return job_.ledger.enter(unpack_entry(from, job_.start));
    case ControlKind::share: return job_.checkpointer->enter(control.from, unpack_share(from));
    case ControlKind::records: {
      RankRecords records = unpack_records(from);
      const Monitor::Lock lock = monitor_.lock();
      for (auto& [worker, record] : records.workers) others_.records.emplace(worker, std::move(record));
      if (records.clock) others_.clocks.emplace(control.from, *records.clock);
      ++complete_;
      return monitor_.notify();
    }
    case ControlKind::failed: {
      const auto text = from.take<std::string>();
      if (leads()) {
        job_.coordinator.stop(std::make_exception_ptr(
            Error(ErrorKind::run, "rank " + std::to_string(control.from) + ": " + text)));
      } else {
        job_.coordinator.stop(std::make_exception_ptr(SaidElsewhere(ErrorKind::run, text)));
      }
      return;
    }
    case ControlKind::interrupt: interrupted_ = true; return;
    case ControlKind::pulse: return read_pulse(control.from, from);
  }
}

void RankLink::read_pulse(int rank, Unpacker& control) {
  const Pulse pulse = unpack_pulse(control);
  elsewhere_[static_cast<std::size_t>(rank)] = pulse.done;
  for (const auto& [worker, state] : pulse.states)
    job_.coordinator.tell_state(worker, "rank " + std::to_string(rank) + ": " + state);
  Coordinator::Elsewhere all;
  for (std::size_t r = leads() ? 1 : 0; r < (leads() ? elsewhere_.size() : 1); ++r) {
    all.progress += elsewhere_[r].progress;
    all.in_phase = all.in_phase || elsewhere_[r].in_phase;
  }
  job_.coordinator.tell_elsewhere(all);
}

// Rank 0 tells the others what all have done.
void RankLink::send_pulse() {
  Pulse pulse{job_.coordinator.here(), {}};
  if (leads()) {
    pulse.done = {job_.coordinator.progress(), job_.coordinator.in_phase()};
    return mailbox_.post_all(pack(pulse));
  }
  for (const WorkerId worker : job_.workers_here())
    pulse.states.emplace_back(worker, job_.coordinator.state_of(worker));
  mailbox_.post(0, pack(pulse));
}

// A process that was suspended has heard of nobody: that is no silence. Rank 0 says first who is silent, then
// the others whether it is.
void RankLink::check_silence(Time now) {
  if (now - looked_ > 4 * interval()) {
    for (auto& heard : heard_) heard = heard ? std::optional(now) : heard;
  }
  looked_ = now;
  const Seconds most = job_.options.stall_timeout * (leads() ? 1 : 1.2 + 0.1 * std::min(mailbox_.rank(), 8));
  for (std::size_t r = 0; r < heard_.size(); ++r) {
    if (!heard_[r] || now - *heard_[r] < most) continue;
    std::string workers;
    for (const plan::Worker& worker : job_.plan.workers) {
      if (job_.setup.placement.of(worker.id) == static_cast<int>(r))
        workers += " " + std::to_string(number(worker.id));
    }
    job_.coordinator.stop(std::make_exception_ptr(
        LostRank(ErrorKind::run, "rank " + std::to_string(r) + " (workers" + workers +
                                     ") has been silent for " + to_text(job_.options.stall_timeout) +
                                     ": it hangs, was stopped, or cannot be reached; look at its host")));
  }
}

void RankLink::say_failure() {
  if (failure_said_) return;
  const std::exception_ptr error = job_.coordinator.error();
  if (!error) return;
  failure_said_ = true;
  if (holds<SaidElsewhere>(error)) return;
  if (!leads()) mailbox_.post_failure(text_of(error));
  // Where rank 0 is silent, this rank speaks for it.
  if (leads() || holds<LostRank>(error))
    mailbox_.post_all(Packer().add(ControlKind::failed).add(text_of(error)).take());
}

FromOthers RankLink::await_others() {
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait_driver(
      lock, [&] { return complete_ + 1 == heard_.size(); }, [] { return false; });
  mailbox_.post_all(kind_alone(ControlKind::end));
  return std::move(others_);
}

void RankLink::follow(const std::function<bool()>& interrupted) {
  bool told = false;
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait_driver(
      lock, [&] { return stopping_; },
      [&] {
        if (!told && interrupted()) {
          mailbox_.post(0, kind_alone(ControlKind::interrupt));
          told = true;
        }
        return false;
      });
}

void RankLink::leave(const RecordsHere& records) {
  Monitor::Lock lock = monitor_.lock();
  if (clock_) {
    round_trips_ = kGroup;
    ask();
    monitor_.wait_driver(
        lock, [&] { return round_trips_ == 0; }, [] { return false; });
    for (const auto& [worker, record] : records)
      change_times(*record, [&](Seconds time) { return common(time); });
  }
  mailbox_.post(0, pack(records, clock_ ? std::optional(clock_->relation()) : std::nullopt));
  monitor_.wait_driver(
      lock, [&] { return left_; }, [] { return false; });
}

}  // namespace pp::run
