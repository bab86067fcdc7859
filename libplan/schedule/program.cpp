#include "libplan/schedule/program.h"

#include <algorithm>

#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

bool is_backward(OpKind kind) { return completes_backward(kind) || kind == OpKind::input_gradient; }

/// Iteration `shift` of the body: what lies beyond the last micro-batch is left out.
Program shifted(const Program& body, std::int64_t shift, int micro_batches) {
  Program iteration;
  for (Op op : body) {
    if (has_micro_batch(op.kind)) {
      const std::int64_t moved = op.micro_batch + shift;
      if (moved >= micro_batches) continue;
      op.micro_batch = static_cast<int>(moved);
    }
    iteration.push_back(op);
  }
  return iteration;
}

}  // namespace

Program expand(const Stream& stream, int micro_batches) {
  if (stream.period < 1) {
    throw Error(ErrorKind::data,
                "stream: period = " + std::to_string(stream.period) + "; it must be at least 1");
  }
  Program program = shifted(stream.prologue, 0, micro_batches);
  // An iteration stands for its backwards; a body without any (inference) stands for its forwards.
  const bool trains = std::ranges::any_of(stream.body, is_backward, &Op::kind);
  const auto keeps_iteration = [&](OpKind kind) { return trains ? is_backward(kind) : has_micro_batch(kind); };
  for (std::int64_t shift = 0;; shift += stream.period) {
    const Program iteration = shifted(stream.body, shift, micro_batches);
    if (std::ranges::none_of(iteration, keeps_iteration, &Op::kind)) return program;
    program.insert(program.end(), iteration.begin(), iteration.end());
  }
}

Program expand_stretch(const Stream& stream, int micro_batches) {
  const auto whole = [](const Op& op) { return !has_micro_batch(op.kind); };
  Program program = expand(stream, micro_batches);
  std::int64_t left = std::int64_t{micro_batches / stream.period} * std::ranges::count_if(stream.body, whole);
  std::erase_if(program, [&](const Op& op) { return whole(op) && left-- <= 0; });
  return program;
}

}  // namespace pp::plan
