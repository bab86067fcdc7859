// Device groups of CPU tensors, for ranks that are threads: what is received is there when it is waited for.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "librun/transport/device_group.h"

namespace pp::test {

/// What the members of all groups share.
class ThreadGroups {
 public:
  std::string key() {
    const std::lock_guard held(mutex_);
    return std::to_string(++keys_);
  }
  std::shared_ptr<run::DeviceGroup> join(const std::string& key, int me, int size) {
    return std::make_shared<Group>(*this, key, me, size);
  }
  /// Messages that went by any group.
  int messages() {
    const std::lock_guard held(mutex_);
    return messages_;
  }

 private:
  using Place = std::tuple<std::string, int, int>;  ///< key, from, to

  /// Bytes of one sender that arrive in a tensor, or are added to it.
  struct Coming {
    Place place;
    at::Tensor tensor;
    bool adds = false, done = false;
  };

  class Group final : public run::DeviceGroup {
   public:
    Group(ThreadGroups& all, std::string key, int me, int size)
        : DeviceGroup(me, size, at::kCPU), all_(all), key_(std::move(key)) {}

    void send(int to, const at::Tensor& tensor) override { all_.put({key_, me(), to}, tensor); }
    void receive(int from, const at::Tensor& tensor) override { await(from, tensor, false); }
    void sum(const at::Tensor& tensor) override {
      for (int other = 0; other < size(); ++other) {
        if (other != me()) send(other, tensor);
      }
      for (int other = 0; other < size(); ++other) {
        if (other != me()) await(other, tensor, true);
      }
    }
    void together(const std::function<void()>& calls) override { calls(); }
    void beside(const std::function<void()>& work) override {
      mark()->hold_back();
      work();
    }
    std::unique_ptr<Mark> mark() override { return std::make_unique<Until>(all_, coming_); }
    std::string failure() override { return ""; }
    void abort() noexcept override {}

   private:
    void await(int from, const at::Tensor& tensor, bool adds) {
      coming_.push_back(std::make_shared<Coming>(Coming{{key_, from, me()}, tensor, adds}));
    }

    ThreadGroups& all_;
    std::string key_;
    std::vector<std::shared_ptr<Coming>> coming_;
  };

  struct Until final : run::DeviceGroup::Mark {
    Until(ThreadGroups& of, std::vector<std::shared_ptr<Coming>> which) : all(of), coming(std::move(which)) {}
    bool done() override {
      const std::lock_guard held(all.mutex_);
      return all.take(coming);
    }
    void hold_back() override {
      std::unique_lock held(all.mutex_);
      all.changed_.wait(held, [&] { return all.take(coming); });
    }
    ThreadGroups& all;
    std::vector<std::shared_ptr<Coming>> coming;
  };

  void put(const Place& place, const at::Tensor& tensor) {
    {
      const std::lock_guard held(mutex_);
      queues_[place].emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      ++messages_;
    }
    changed_.notify_all();
  }

  // Under the lock: what has come, in its order; whether that is all.
  bool take(const std::vector<std::shared_ptr<Coming>>& coming) {
    for (const std::shared_ptr<Coming>& one : coming) {
      if (one->done) continue;
      std::deque<std::string>& queue = queues_[one->place];
      if (queue.empty()) return false;
      at::Tensor theirs = at::from_blob(queue.front().data(), one->tensor.sizes(), one->tensor.options());
      TORCH_CHECK(queue.front().size() == one->tensor.nbytes());
      if (one->adds) one->tensor.add_(theirs);
      if (!one->adds) one->tensor.copy_(theirs);
      queue.pop_front();
      one->done = true;
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Place, std::deque<std::string>> queues_;
  int keys_ = 0, messages_ = 0;
};

}  // namespace pp::test
