#include <string>
#include <utility>

#include "librun/transport/message_queue.h"
#include "librun/transport/transport.h"

namespace pp::run {

namespace {

class InProcessTransport : public Transport {
 public:
  InProcessTransport(Coordinator& coordinator, std::vector<Channel> channels) : channels_(std::move(channels)) {
    for (const Channel& channel : channels_) {
      queues_.push_back(
          std::make_unique<MessageQueue<at::Tensor>>(coordinator, channel.from, channel.to, channel.window));
    }
  }

  void expect(int /*channel*/, std::int64_t /*number*/, int /*rows*/) override {}

  void send(int channel, std::int64_t number, at::Tensor tensor) override {
    const auto c = static_cast<std::size_t>(channel);
    queues_[c]->put(
        number, [&](at::Tensor& message) { message = std::move(tensor); },
        [&] {
          return "worker " + std::to_string(pp::number(channels_[c].to)) + " to make room for " +
                 describe(channels_[c], number);
        });
  }

  at::Tensor receive(int channel, std::int64_t number) override {
    const auto c = static_cast<std::size_t>(channel);
    return queues_[c]->take(
        number, [](at::Tensor& message) { return std::move(message); },
        [&] { return describe(channels_[c], number); });
  }

 private:
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<MessageQueue<at::Tensor>>> queues_;  ///< per channel
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator, std::vector<Channel> channels) {
  return std::make_unique<InProcessTransport>(coordinator, std::move(channels));
}

}  // namespace pp::run
