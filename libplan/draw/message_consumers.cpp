#include "libplan/draw/message_consumers.h"

#include <algorithm>
#include <compare>
#include <limits>

namespace pp::plan {
namespace {

bool reads_activation(OpKind kind) { return kind == OpKind::forward; }
bool reads_gradient(OpKind kind) { return kind == OpKind::backward || kind == OpKind::input_gradient; }

/// Where an operation stands on the way of one micro-batch over one worker.
struct Place {
  int worker = 0;
  int micro_batch = 0;
  int progress = 0;  ///< the stage, negative for gradients: it grows along the way
  double start = 0;
  auto operator<=>(const Place&) const = default;
};

/// The readers of one direction, by place.
class Readers {
 public:
  Readers(const SimulationResult& result, bool (*reads)(OpKind), int direction) : direction_(direction) {
    for (const OpEvent& event : result.ops) {
      if (reads(event.op.kind)) readers_.push_back({place(event.worker, event.op, event.start), &event});
    }
    std::ranges::sort(readers_, {}, &Reader::place);
  }

  const OpEvent* reader_of(const MessageEvent& message) const {
    // The next stage on that worker first, then the first time that it runs after the message was sent.
    Place wanted = place(message.to, message.producer, Seconds(std::numeric_limits<double>::infinity()));
    const Reader* next = at_or_after(wanted);
    if (next == nullptr) return nullptr;
    wanted.progress = next->place.progress;
    wanted.start = message.start.count();
    const Reader* found = at_or_after(wanted);
    return found != nullptr && found->place.progress == wanted.progress ? found->event : nullptr;
  }

 private:
  struct Reader {
    Place place;
    const OpEvent* event = nullptr;
  };

  Place place(WorkerId worker, const Op& op, Seconds start) const {
    return {number(worker), op.micro_batch, direction_ * number(op.stage), start.count()};
  }

  /// Of the same worker and micro-batch.
  const Reader* at_or_after(const Place& wanted) const {
    const auto found = std::ranges::lower_bound(readers_, wanted, {}, &Reader::place);
    const bool same = found != readers_.end() && found->place.worker == wanted.worker &&
                      found->place.micro_batch == wanted.micro_batch;
    return same ? &*found : nullptr;
  }

  int direction_;
  std::vector<Reader> readers_;
};

}  // namespace

std::vector<const OpEvent*> message_consumers(const SimulationResult& result) {
  const Readers activations(result, reads_activation, 1);
  const Readers gradients(result, reads_gradient, -1);
  std::vector<const OpEvent*> consumers;
  consumers.reserve(result.messages.size());
  for (const MessageEvent& message : result.messages) {
    const bool forward = message.producer.kind == OpKind::forward;
    consumers.push_back((forward ? activations : gradients).reader_of(message));
  }
  return consumers;
}

}  // namespace pp::plan
