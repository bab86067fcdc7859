// A plan is a program: per worker the ordered list of operations it executes. This file is the type and its
// text form (`F2.1` forward of stage 2 on micro-batch 1, `AR2`, `U2`); generators write it, the validator, the
// simulator and the executor read it. Sends and receives are derived from the dependencies, never written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// The names are the letters of the text form.
enum class OpKind {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  recompute,
  all_reduce,
  tied_all_reduce,
  update,
  load,
  evict
};

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::OpKind> {
  static constexpr std::array table{std::pair{plan::OpKind::forward, "F"sv},
                                    std::pair{plan::OpKind::backward, "B"sv},
                                    std::pair{plan::OpKind::input_gradient, "I"sv},
                                    std::pair{plan::OpKind::weight_gradient, "W"sv},
                                    std::pair{plan::OpKind::recompute, "R"sv},
                                    std::pair{plan::OpKind::all_reduce, "AR"sv},
                                    std::pair{plan::OpKind::tied_all_reduce, "ARg"sv},
                                    std::pair{plan::OpKind::update, "U"sv},
                                    std::pair{plan::OpKind::load, "L"sv},
                                    std::pair{plan::OpKind::evict, "E"sv}};
};
}  // namespace pp

namespace pp::plan {

struct Op {
  OpKind kind = OpKind::forward;
  StageId stage{};
  int micro_batch = 0;  ///< 0 where has_micro_batch() says no; of `ARg`: its group
  bool operator==(const Op&) const = default;
};

/// All-reduce, update and the swaps of weights (load, evict) belong to no single micro-batch.
constexpr bool has_micro_batch(OpKind kind) { return kind < OpKind::all_reduce; }
/// AR adds up a stage's gradients over its workers; ARg those of a parameter that the stages of a group share
/// (ProgramSet::tied). The stage of ARg is not written: a worker's first one of the group.
constexpr bool is_all_reduce(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::tied_all_reduce;
}
/// B, or the last half of it: activations are freed and the gradient of the micro-batch is final.
constexpr bool completes_backward(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::weight_gradient;
}

/// The finite list of one worker.
using Program = std::vector<Op>;

/// An asynchronous program: the prologue once, then the body, iteration k with k*period added to every
/// micro-batch index.
struct Stream {
  Program prologue;
  Program body;
  int period = 1;
  bool operator==(const Stream&) const = default;
};

/// A step's program as a stream: no prologue, an iteration a step of `micro_batches`.
Stream steps_of(Program program, int micro_batches);

/// The list for a number of micro-batches, an operation at a time: F and B beyond the last are left out, and an
/// iteration that would have no B (or W) is left out with its AR and U. A body without B, as of inference or of
/// a replica that has nothing to do in a step, stands for its F or for its place.
class StreamWalk {
 public:
  /// `stream` must outlive it. Throws pp::Error (data) for a period below 1.
  StreamWalk(const Stream& stream, std::int64_t micro_batches);

  /// As the stream writes it; its micro-batch is op.micro_batch + shift(). Nothing at the end.
  std::optional<Op> next();
  std::int64_t shift() const { return shift_; }
  /// Where the stream has that operation: in the prologue, behind which the body is numbered on.
  std::size_t place() const { return position_ - 1 + (in_body_ ? stream_.prologue.size() : 0); }
  /// Ends the list with fewer micro-batches than it was made for; none beyond them has been given out.
  void end_at(std::int64_t micro_batches);

 private:
  /// Whether something of the iteration is left.
  bool has_iteration() const { return stands_for_ + shift_ < micro_batches_; }

  const Stream& stream_;
  std::int64_t micro_batches_;
  std::int64_t shift_ = 0;    ///< of the iteration, 0 in the prologue
  std::size_t position_ = 0;  ///< in the prologue or the body
  bool in_body_ = false;
  int stands_for_ = 0;  ///< least micro-batch of the body whose absence leaves an iteration out
};

/// The same as a whole.
Program expand(const Stream& stream, int micro_batches);
/// The same for a stretch that may end within a round of its stage's replicas: an iteration that not every
/// replica has keeps its F and B, without AR and U.
Program expand_stretch(const Stream& stream, int micro_batches);

/// The same of a clocked stage, whose indices are steps: it sees `frames` frames, the first one as many steps
/// later than stage 0 as its number says. All N stages together take clock_steps().
Program expand_frames(const Stream& stream, int frames);
constexpr int clock_steps(int frames, int stages) { return frames + stages - 1; }

/// `F0.0 F0.1 B0.0 AR0 U0`, single spaces.
std::string to_text(const Op& op);
std::string to_text(std::span<const Op> program);
/// Throws pp::Error (data) that names the token and its position: `operation 3, "G0.1": unknown kind; use F, B,
/// ...`.
Program parse_program(std::string_view text);

}  // namespace pp::plan
