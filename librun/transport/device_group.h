// GPUs of several ranks that hand tensors to each other without their hosts: what NCCL is asked for
// (nccl/nccl_group.cpp, a module that is loaded for it, or nccl/no_nccl.cpp in a build without). Tests have
// groups of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

namespace pp::run {

/// One member's end. Members have a GPU each and make the calls that belong together in the same order. A call
/// returns at once: what it asks for is done in a stream of the group's own, behind what the calling thread has
/// handed to the device so far. For one thread at a time, but for failure() and abort().
class DeviceGroup {
 public:
  /// A place behind the calls so far.
  class Mark {
   public:
    virtual ~Mark() = default;
    /// Whether the device has come there.
    virtual bool done() = 0;
    /// What the calling thread hands to the device from now on comes after it; the host does not wait.
    virtual void hold_back() = 0;
  };

  DeviceGroup(int me, int size, const at::Device& device) : me_(me), size_(size), device_(device) {}
  virtual ~DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  int me() const { return me_; }
  int size() const { return size_; }
  const at::Device& device() const { return device_; }

  /// Contiguous tensors on this member's device, of equal bytes at both ends. Their memory is kept for as long
  /// as the call needs it, whoever drops the last handle.
  virtual void send(int to, const at::Tensor& tensor) = 0;
  virtual void receive(int from, const at::Tensor& tensor) = 0;
  /// In place the sum over all members, in the order that the library likes best.
  virtual void sum(const at::Tensor& tensor) = 0;
  /// The calls that `calls` makes wait for each other's partners, not for each other.
  virtual void together(const std::function<void()>& calls) = 0;
  /// What `work` hands to the device goes into the group's stream, behind the calls so far.
  virtual void beside(const std::function<void()>& work) = 0;
  virtual std::unique_ptr<Mark> mark() = 0;

  /// Why the group cannot go on; empty while it can.
  virtual std::string failure() = 0;
  /// Ends what is under way and all waits for it.
  virtual void abort() noexcept = 0;

 private:
  int me_, size_;
  at::Device device_;
};

/// What the members of one group give to join_device_group(), made by one of them. Throws pp::Error (run).
std::string make_group_key();

/// All members call it at about the same time; blocks until they have. Throws pp::Error (run).
std::unique_ptr<DeviceGroup> join_device_group(const std::string& key, int me, int size,
                                               const at::Device& device);

}  // namespace pp::run
