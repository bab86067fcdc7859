#include "librun/wiring/cursor.h"

#include <algorithm>

namespace pp::run {

std::map<StageId, int> first_backwards(const plan::Stream& stream) {
  std::map<StageId, int> first;
  for (const plan::Program* part : {&stream.prologue, &stream.body}) {
    for (const plan::Op& op : *part) {
      if (!plan::completes_backward(op.kind)) continue;
      int& least = first.try_emplace(op.stage, op.micro_batch).first->second;
      least = std::min(least, op.micro_batch);
    }
  }
  return first;
}

Cursor::Cursor(const plan::Stream& stream, bool of_step, const EpochShape& epoch, StepRange range)
    : stream_(stream),
      of_step_(of_step),
      epoch_(epoch),
      range_(range),
      walk_(stream, local_begin(range.end)),
      first_backward_(first_backwards(stream)) {
  for (const plan::Op& op : stream.body) {
    if (op.kind != plan::OpKind::recompute) continue;
    int& least = again_.try_emplace({op.stage, op.micro_batch % stream.period}, op.micro_batch).first->second;
    least = std::min(least, op.micro_batch);
  }
}

void Cursor::end_at(Step end) {
  range_.end = end;
  walk_.end_at(local_begin(end));
}

std::int64_t Cursor::local_begin(Step step) const {
  const auto mini_batch = [&](Step s) { return epoch_.begin(s - range_.epoch_first); };
  return (mini_batch(step) - mini_batch(range_.first)) * epoch_.micro_batches;
}

std::int64_t Cursor::mini_batch_of(std::int64_t local) const {
  return epoch_.begin(range_.first - range_.epoch_first) + local / epoch_.micro_batches;
}

bool Cursor::ends_step(std::int64_t mini_batch) const {
  return mini_batch + 1 == epoch_.begin(mini_batch / epoch_.accumulate + 1);
}

std::optional<Operation> Cursor::next() {
  std::optional<plan::Op> op = walk_.next();
  while (op && !plan::has_micro_batch(op->kind) && epoch_.accumulate > 1 &&
         !ends_step(mini_batch_of(walk_.shift())))
    op = walk_.next();
  if (!op) return std::nullopt;
  Operation operation{.op = *op, .place = walk_.place()};
  if (!plan::has_micro_batch(op->kind)) {
    const auto due = due_.find(op->stage);
    const bool reads_gradient = op->kind == plan::OpKind::all_reduce || op->kind == plan::OpKind::update;
    const bool backward = reads_gradient && due != due_.end();
    operation.step =
        backward ? due->second : range_.epoch_first + mini_batch_of(walk_.shift()) / epoch_.accumulate;
    return operation;
  }
  operation.local = op->micro_batch + walk_.shift();
  locate(operation);
  operation.op.micro_batch = of_step_ ? operation.micro_batch : static_cast<int>(operation.local);
  if (op->kind == plan::OpKind::forward) {
    operation.run_again = runs_again(op->stage, operation.local);
    const auto first = first_backward_.find(op->stage);
    operation.alone = first == first_backward_.end() || operation.local < first->second;
  }
  if (plan::completes_backward(op->kind)) {
    due_[op->stage] = operation.step;
    operation.ends_step = ends_step(mini_batch_of(operation.local));
  }
  return operation;
}

// By the tensor_split rule the first N mod M micro-batches of a mini-batch have a sample more.
void Cursor::locate(Operation& operation) const {
  const int count = epoch_.micro_batches;
  const std::int64_t mini_batch = mini_batch_of(operation.local);
  const Step step = mini_batch / epoch_.accumulate;  // of the epoch
  const int piece = static_cast<int>(operation.local % count);
  const int size = epoch_.size(mini_batch), least = size / count, more = size % count;
  operation.step = range_.epoch_first + step;
  operation.micro_batch = static_cast<int>(mini_batch - epoch_.begin(step)) * count + piece;
  operation.rows = least + (piece < more ? 1 : 0);
  operation.first_row = epoch_.first(mini_batch) + std::int64_t{piece} * least + std::min(piece, more);
}

bool Cursor::runs_again(StageId stage, std::int64_t local) const {
  const auto found = again_.find({stage, static_cast<int>(local % stream_.period)});
  return found != again_.end() && local >= found->second;
}

}  // namespace pp::run
