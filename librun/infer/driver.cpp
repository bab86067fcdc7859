#include "librun/infer/driver.h"

#include <algorithm>

namespace pp::run {

InferDriver::InferDriver(Job& job, InferObserver& observer, const std::function<bool()>& interrupted)
    : job_(job), observer_(observer), interrupted_(interrupted) {}

void InferDriver::drive() {
  job_.commands.infer(job_.test_shape.count);
  Step allowed = job_.inference->begin(static_cast<int>(job_.plan.workers.size()));
  job_.commands.grant(allowed);
  while (done_ < allowed) {
    const auto complete = job_.passes.await([&] { return poll(); });
    if (!complete) break;
    for (const PassTime& pass : *complete) {
      count(pass);
      allowed = job_.inference->completed(pass.pass);
    }
    job_.commands.grant(allowed);
    tell();
  }
  job_.commands.cut(Commands::Cut::evaluation_too);
  job_.commands.stop();
}

bool InferDriver::poll() {
  interrupted_early_ = interrupted_early_ || interrupted_();
  return interrupted_early_;
}

void InferDriver::count(const PassTime& pass) {
  begin_ = done_ == 0 ? pass.begin : std::min(begin_, pass.begin);
  end_ = std::max(end_, pass.end);
  ++done_;
  const Seconds latency = pass.end - pass.begin;
  latencies_.add(latency);
  longest_ = std::max(longest_, latency);
}

void InferDriver::tell() {
  const Phase phase(job_.coordinator);
  InferProgress progress{job_.inference->done(), job_.inference->all()};
  if (const Seconds elapsed = end_ - begin_; elapsed.count() > 0)
    progress.per_s = static_cast<double>(progress.done) / elapsed.count();
  observer_.progress(progress);
}

void InferDriver::add_to(InferReport& report) const {
  report.exit_reason = interrupted_early_ ? "interrupted" : "completed";
  report.passes = done_;
  report.elapsed = end_ - begin_;
  if (report.elapsed.count() > 0)
    report.per_s = static_cast<double>(job_.inference->done()) / report.elapsed.count();
  report.latency = {latencies_.median(), latencies_.quantile(0.95), longest_};
}

}  // namespace pp::run
