#include "librun/infer/driver.h"

#include <algorithm>

namespace pp::run {

InferDriver::InferDriver(Job& job, InferObserver& observer, const std::function<bool()>& interrupted)
    : DriveLoop(job, interrupted), observer_(observer) {}

void InferDriver::drive() {
  job_.commands.infer(job_.test_shape.count);
  allowed_ = job_.inference->begin(static_cast<int>(job_.plan.workers.size()));
  run();
  job_.commands.cut(Commands::Cut::evaluation_too);
  job_.commands.stop();
}

void InferDriver::permit() { job_.commands.grant(allowed_); }

void InferDriver::take() {
  const auto complete = job_.passes.await([&] { return poll(); });
  if (!complete) return;
  for (const PassTime& pass : *complete) {
    count(pass);
    allowed_ = job_.inference->completed(pass.pass);
  }
  tell_progress();
}

void InferDriver::count(const PassTime& pass) {
  begin_ = done_ == 0 ? pass.begin : std::min(begin_, pass.begin);
  end_ = std::max(end_, pass.end);
  ++done_;
  const Seconds latency = pass.end - pass.begin;
  latencies_.add(latency);
  longest_ = std::max(longest_, latency);
}

void InferDriver::tell_progress() {
  InferProgress progress{job_.inference->done(), job_.inference->all()};
  if (const Seconds elapsed = end_ - begin_; elapsed.count() > 0)
    progress.per_s = static_cast<double>(progress.done) / elapsed.count();
  tell([&] { observer_.progress(progress); });
}

void InferDriver::add_to(InferReport& report) const {
  report.exit_reason = interrupted() ? "interrupted" : "completed";
  report.passes = done_;
  report.elapsed = end_ - begin_;
  if (report.elapsed.count() > 0)
    report.per_s = static_cast<double>(job_.inference->done()) / report.elapsed.count();
  report.latency = {latencies_.median(), latencies_.quantile(0.95), longest_};
}

}  // namespace pp::run
