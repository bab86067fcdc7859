#include "librun/transport/direct_transport.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/ops.h"

namespace pp::run {

namespace {

// One end of a channel; only its worker looks.
struct DirectEnd {
  struct Message {
    std::int64_t number = 0;
    int rows = 0;
    at::Tensor tensor = {};  ///< undefined: not asked for, because the type is not known yet
    std::unique_ptr<DeviceGroup::Mark> mark = {};
  };
  std::optional<at::ScalarType> type;
  std::optional<std::int64_t> first;  ///< goes the other way and tells the type
  std::deque<Message> messages;       ///< under way
};

class DirectTransport final : public Transport {
 public:
  DirectTransport(Coordinator& coordinator, std::unique_ptr<Transport> other, std::vector<Channel> channels,
                  DeviceGroups groups)
      : coordinator_(coordinator),
        other_(std::move(other)),
        channels_(std::move(channels)),
        groups_(std::move(groups)),
        ends_(channels_.size()) {
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      if (channels_[c].dtype) ends_[c].type = model::scalar_type(*channels_[c].dtype);
    }
  }

  void expect(int channel, std::int64_t number, int rows) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c] || goes_first(end, number)) return other_->expect(channel, number, rows);
    end.messages.push_back({number, rows});
    if (end.type) ask(c, end.messages.back());
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c]) return other_->receive(channel, number);
    if (end.first == number) {
      at::Tensor tensor = other_->receive(channel, number);
      end.type = tensor.scalar_type();
      for (DirectEnd::Message& message : end.messages) ask(c, message);
      return tensor;
    }
    if (end.messages.empty() || end.messages.front().number != number)
      throw Error(ErrorKind::internal, describe(channels_[c], number) + " was not expected");
    DirectEnd::Message message = std::move(end.messages.front());
    end.messages.pop_front();
    message.mark->hold_back();
    return std::move(message.tensor);
  }

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    const auto c = static_cast<std::size_t>(channel);
    DirectEnd& end = ends_[c];
    if (!groups_[c]) return other_->send(channel, number, std::move(tensor));
    if (goes_first(end, number)) {
      end.type = tensor.scalar_type();
      return other_->send(channel, number, std::move(tensor));
    }
    const Channel& of = channels_[c];
    const auto has_room = [&] {
      while (!end.messages.empty() && end.messages.front().mark->done()) end.messages.pop_front();
      return std::ssize(end.messages) < of.window;
    };
    coordinator_.poll(of.from, has_room, [&] {
      return "worker " + std::to_string(pp::number(of.to)) + " to make room for " + describe(of, number);
    });
    groups_[c]->send(1, tensor.contiguous(format_of(c)));
    end.messages.push_back({.number = number, .mark = groups_[c]->mark()});
  }

 private:
  static bool goes_first(DirectEnd& end, std::int64_t number) {
    if (end.type || end.first) return false;
    end.first = number;
    return true;
  }

  at::MemoryFormat format_of(std::size_t c) const {
    return model::memory_format(channels_[c].format, 1 + std::ssize(channels_[c].shape));
  }

  void ask(std::size_t c, DirectEnd::Message& message) {
    std::vector<std::int64_t> sizes{message.rows};
    sizes.insert(sizes.end(), channels_[c].shape.begin(), channels_[c].shape.end());
    const profile::ChargeMemory charged{profile::MemoryAccount()};  // on its way it counts at nobody
    message.tensor =
        at::empty(sizes, at::TensorOptions(*ends_[c].type).device(groups_[c]->device()), format_of(c));
    groups_[c]->receive(0, message.tensor);
    message.mark = groups_[c]->mark();
  }

  Coordinator& coordinator_;
  std::unique_ptr<Transport> other_;
  std::vector<Channel> channels_;
  DeviceGroups groups_;
  std::vector<DirectEnd> ends_;  ///< per channel: the end that is here
};

}  // namespace

std::unique_ptr<Transport> make_direct_transport(Coordinator& coordinator, std::unique_ptr<Transport> other,
                                                 std::vector<Channel> channels, DeviceGroups groups) {
  return std::make_unique<DirectTransport>(coordinator, std::move(other), std::move(channels),
                                           std::move(groups));
}

}  // namespace pp::run
