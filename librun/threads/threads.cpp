#include "librun/threads/threads.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

Threads::Start Threads::system() {
  return [](Body body) { return std::thread(std::move(body)); };
}

void Threads::add(Body body) {
  const std::size_t me = threads_.size();
  threads_.reserve(me + 1);
  {
    const std::lock_guard held(mutex_);
    ended_.push_back(false);
  }
  try {
    threads_.push_back(start_([this, me, body = std::move(body)] {
      body();
      const std::lock_guard held(mutex_);
      ended_[me] = true;
      changed_.notify_all();
    }));
  } catch (const std::system_error& error) {
    const std::lock_guard held(mutex_);
    ended_.pop_back();
    throw Error(ErrorKind::run, "thread " + std::to_string(me + 1) +
                                    " of the run cannot be started: " + error.code().message() +
                                    "; plan for fewer devices, or raise the limit of processes (ulimit -u)");
  }
}

void Threads::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::optional<std::size_t> Threads::join_within(Seconds most) {
  {
    std::unique_lock held(mutex_);
    const auto first = [&] { return std::ranges::find(ended_, false); };
    if (!changed_.wait_for(held, most, [&] { return first() == ended_.end(); }))
      return static_cast<std::size_t>(first() - ended_.begin());
  }
  join();
  return std::nullopt;
}

}  // namespace pp::run
