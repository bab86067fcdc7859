#include <utility>

#include "librun/transport/transport.h"

namespace pp::run {

namespace {

class InProcessTransport : public Transport {
 public:
  InProcessTransport(Coordinator& coordinator, std::vector<std::vector<int>> capacity) {
    for (std::size_t to = 0; to < capacity.size(); ++to) {
      boxes_.push_back(std::make_unique<Mailbox<at::Tensor>>(coordinator, WorkerId{static_cast<int>(to)},
                                                             std::move(capacity[to])));
    }
  }

  void send(WorkerId from, WorkerId to, const Tag& tag, at::Tensor tensor) override {
    boxes_[index(to)]->put(from, tag, std::move(tensor));
  }
  at::Tensor receive(WorkerId at, WorkerId from, const Tag& tag) override {
    return boxes_[index(at)]->take(from, tag);
  }

 private:
  std::vector<std::unique_ptr<Mailbox<at::Tensor>>> boxes_;
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator,
                                                     std::vector<std::vector<int>> capacity) {
  return std::make_unique<InProcessTransport>(coordinator, std::move(capacity));
}

}  // namespace pp::run
