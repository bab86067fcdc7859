#include "libplan/schedule/program.h"

#include <algorithm>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

bool is_backward(OpKind kind) { return completes_backward(kind) || kind == OpKind::input_gradient; }

/// Least micro-batch of the operations that `kept` names; none without any.
std::optional<int> least(const Program& body, bool (*kept)(OpKind)) {
  std::optional<int> found;
  for (const Op& op : body) {
    if (kept(op.kind)) found = std::min(found.value_or(op.micro_batch), op.micro_batch);
  }
  return found;
}

/// An iteration stands for its backwards; a body without any for its forwards.
int least_that_counts(const Program& body) {
  if (const std::optional<int> backward = least(body, is_backward)) return *backward;
  return least(body, has_micro_batch).value_or(0);
}

}  // namespace

Stream steps_of(Program program, int micro_batches) {
  return {.prologue = {}, .body = std::move(program), .period = micro_batches};
}

StreamWalk::StreamWalk(const Stream& stream, std::int64_t micro_batches)
    : stream_(stream), micro_batches_(micro_batches), stands_for_(least_that_counts(stream.body)) {
  if (stream.period < 1) {
    throw Error(ErrorKind::data,
                "stream: period = " + std::to_string(stream.period) + "; it must be at least 1");
  }
}

std::optional<Op> StreamWalk::next() {
  while (true) {
    const Program& part = in_body_ ? stream_.body : stream_.prologue;
    if (position_ == part.size()) {
      shift_ += in_body_ ? stream_.period : 0;
      in_body_ = true;
      position_ = 0;
    }
    if (in_body_ && position_ == 0 && (stream_.body.empty() || !has_iteration())) return std::nullopt;
    const Program& list = in_body_ ? stream_.body : stream_.prologue;
    const Op& op = list[position_++];
    if (!has_micro_batch(op.kind) || op.micro_batch + shift_ < micro_batches_) return op;
  }
}

void StreamWalk::end_at(std::int64_t micro_batches) {
  micro_batches_ = micro_batches;
  if (in_body_ && !has_iteration()) position_ = stream_.body.size();
}

Program expand(const Stream& stream, int micro_batches) {
  Program program;
  StreamWalk walk(stream, micro_batches);
  while (std::optional<Op> op = walk.next()) {
    if (has_micro_batch(op->kind)) op->micro_batch += static_cast<int>(walk.shift());
    program.push_back(*op);
  }
  return program;
}

Program expand_stretch(const Stream& stream, int micro_batches) {
  const auto whole = [](const Op& op) { return !has_micro_batch(op.kind); };
  Program program = expand(stream, micro_batches);
  std::int64_t left = std::int64_t{micro_batches / stream.period} * std::ranges::count_if(stream.body, whole);
  std::erase_if(program, [&](const Op& op) { return whole(op) && left-- <= 0; });
  return program;
}

Program expand_frames(const Stream& stream, int frames) {
  return expand(stream, frames + (stream.body.empty() ? 0 : number(stream.body.front().stage)));
}

}  // namespace pp::plan
