#include "libprofile/measure/device_gang.h"

#include <algorithm>
#include <utility>

namespace pp::profile {

DeviceGang::DeviceGang(int devices, const std::function<void(int device)>& enter)
    : errors_(static_cast<std::size_t>(devices)), start_(devices) {
  try {
    for (int device = 0; device < devices; ++device) {
      threads_.emplace_back([this, device] { serve(device); });
    }
    run(enter);
  } catch (...) {
    stop();
    throw;
  }
}

DeviceGang::~DeviceGang() { stop(); }

void DeviceGang::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  threads_.clear();
}

void DeviceGang::run(const std::function<void(int device)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  busy_ = static_cast<int>(threads_.size());
  ++run_;
  wake_.notify_all();
  all_done_.wait(lock, [&] { return busy_ == 0; });
  work_ = nullptr;
  for (std::exception_ptr& error : errors_) {
    if (error) {
      const std::exception_ptr first = error;
      std::fill(errors_.begin(), errors_.end(), nullptr);
      std::rethrow_exception(first);
    }
  }
}

void DeviceGang::serve(int device) {
  for (std::uint64_t served = 0;;) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || run_ != served; });
      if (stop_) return;
      served = run_;
      work = work_;
    }
    start_.arrive_and_wait();
    std::exception_ptr error;
    try {
      (*work)(device);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    errors_[static_cast<std::size_t>(device)] = std::move(error);
    if (--busy_ == 0) all_done_.notify_one();
  }
}

}  // namespace pp::profile
