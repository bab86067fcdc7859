#include <string>
#include <utility>

#include "libprofile/device/device_event.h"
#include "librun/threads/message_queue.h"
#include "librun/transport/transport.h"

namespace pp::run {

namespace {

/// A tensor; on a CUDA device also when it is complete.
struct Message {
  at::Tensor tensor;
  std::unique_ptr<profile::DeviceEvent>
      ready;  ///< made with the first such tensor, by the channel's only sender
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(Coordinator& coordinator, std::vector<Channel> channels) : channels_(std::move(channels)) {
    for (const Channel& channel : channels_) {
      queues_.push_back(
          std::make_unique<MessageQueue<Message>>(coordinator, channel.from, channel.to, channel.window));
    }
  }

  void expect(int /*channel*/, std::int64_t /*number*/, int /*rows*/) override {}

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    const auto c = static_cast<std::size_t>(channel);
    queues_[c]->put(
        number,
        [&](Message& message) {
          message.tensor = std::move(tensor);
          if (!message.tensor.is_cuda()) return;
          if (!message.ready)
            message.ready = profile::make_event(message.tensor.device(), profile::Timing::off);
          message.ready->record();
        },
        [&] {
          return "worker " + std::to_string(pp::number(channels_[c].to)) + " to make room for " +
                 describe(channels_[c], number);
        });
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    const auto c = static_cast<std::size_t>(channel);
    return queues_[c]->take(
        number,
        [](Message& message) {
          if (message.tensor.is_cuda()) message.ready->hold_back(message.tensor.device());
          return std::move(message.tensor);
        },
        [&] { return describe(channels_[c], number); });
  }

 private:
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<MessageQueue<Message>>> queues_;  ///< per channel
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator, std::vector<Channel> channels) {
  return std::make_unique<InProcessTransport>(coordinator, std::move(channels));
}

}  // namespace pp::run
