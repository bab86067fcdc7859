#include "librun/worker/cursor.h"

#include <algorithm>

namespace pp::run {

Cursor::Cursor(const plan::Stream& stream, bool of_step, const EpochShape& epoch, Stretch stretch)
    : stream_(stream),
      of_step_(of_step),
      epoch_(epoch),
      stretch_(stretch),
      walk_(stream, (stretch.end - stretch.first) * epoch.micro_batches) {
  for (const plan::Op& op : stream.body) {
    if (op.kind != plan::OpKind::recompute) continue;
    int& least = again_.try_emplace({op.stage, op.micro_batch % stream.period}, op.micro_batch).first->second;
    least = std::min(least, op.micro_batch);
  }
}

void Cursor::end_at(Step end) {
  stretch_.end = end;
  walk_.end_at((end - stretch_.first) * epoch_.micro_batches);
}

std::optional<Turn> Cursor::next() {
  const std::optional<plan::Op> op = walk_.next();
  if (!op) return std::nullopt;
  Turn turn{.op = *op};
  if (!plan::has_micro_batch(op->kind)) {
    const auto due = due_.find(op->stage);
    const bool backward = op->kind != plan::OpKind::tied_all_reduce && due != due_.end();
    turn.step = backward ? due->second : stretch_.first + walk_.shift() / epoch_.micro_batches;
    return turn;
  }
  turn.local = op->micro_batch + walk_.shift();
  if (!of_step_) turn.op.micro_batch = static_cast<int>(turn.local);
  locate(turn);
  turn.run_again = op->kind == plan::OpKind::forward && runs_again(op->stage, turn.local);
  if (plan::completes_backward(op->kind)) due_[op->stage] = turn.step;
  return turn;
}

// By the tensor_split rule the first N mod M micro-batches have a sample more.
void Cursor::locate(Turn& turn) const {
  const int count = epoch_.micro_batches;
  turn.step = stretch_.first + turn.local / count;
  turn.micro_batch = static_cast<int>(turn.local % count);
  const Step mini_batch = turn.step - stretch_.epoch_first;
  const int size = epoch_.size(mini_batch), least = size / count, more = size % count;
  turn.rows = least + (turn.micro_batch < more ? 1 : 0);
  turn.first_row =
      epoch_.first(mini_batch) + std::int64_t{turn.micro_batch} * least + std::min(turn.micro_batch, more);
  turn.weight = static_cast<double>(turn.rows) / size;
}

bool Cursor::runs_again(StageId stage, std::int64_t local) const {
  const auto found = again_.find({stage, static_cast<int>(local % stream_.period)});
  return found != again_.end() && local >= found->second;
}

}  // namespace pp::run
