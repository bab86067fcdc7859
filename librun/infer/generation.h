// Tokens one after the other: each pass gives a group of sequences the next one. Two groups for each worker are
// under way; one whose sequences have all ended makes room for the next. A pass computes all
// positions again or, by pieces, the prompt at first and then one position, with the keys and values of those
// before.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/infer/options.h"
#include "librun/infer/sequences.h"
#include "librun/worker/inference.h"

namespace pp::run {

/// The sequences as far as they have grown. A group's are changed by the worker of a pass that gives it tokens
/// and read in the passes after that, so they need no lock of their own.
class Sequences {
 public:
  /// `prompts`: [samples, ...], or undefined: all begin with the start token.
  Sequences(const SequencePlace& place, const GenerationOptions& options, std::int64_t samples,
            const at::Tensor& prompts);

  std::int64_t count() const { return static_cast<std::int64_t>(states_.size()); }
  /// Of these, [n, length]; behind a sequence's last token stand zeros. By pieces [n, positions of the piece].
  at::Tensor rows(std::span<const std::int64_t> samples) const;
  /// What rows() gives of these from now on: the whole prompt, or the last token of each. Samples of a pass.
  model::Piece begin_prompt(std::span<const std::int64_t> samples);
  model::Piece begin_last(std::span<const std::int64_t> samples);
  /// Where the next token of a sequence is said.
  std::int64_t last(std::int64_t sample) const { return state(sample).length - 1; }
  /// The same among the positions of rows(); of one that has ended any of them.
  std::int64_t last_in_piece(std::int64_t sample) const {
    const State& of = state(sample);
    return std::min(last(sample), place_.length - 1) - of.first;
  }
  bool ended(std::int64_t sample) const { return state(sample).ended; }
  void append(std::int64_t sample, std::int64_t token);
  /// [samples, prompt + new tokens], and their lengths.
  at::Tensor tokens() const { return tokens_; }
  at::Tensor lengths() const;

 private:
  struct State {
    std::int64_t length = 0;
    int made = 0;
    bool ended = false;
    std::int64_t first = 0, positions = 0;  ///< of its piece; no positions: whole
  };
  model::Piece begin(std::span<const std::int64_t> samples, std::int64_t positions);
  std::int64_t prompt() const { return std::max(1, options_.prompt_length); }
  const State& state(std::int64_t sample) const { return states_[static_cast<std::size_t>(sample)]; }

  SequencePlace place_;
  GenerationOptions options_;
  at::Tensor tokens_;
  std::vector<State> states_;
};

class Generation final : public Inference {
 public:
  enum class By { whole_sequences, pieces };
  /// Groups of `rows` sequences. By pieces: a model of which runs_by_pieces() holds, on stages of one worker.
  /// Throws pp::Error (usage) when the file cannot be written.
  Generation(const std::filesystem::path& path, std::string name, Sequences sequences,
             const SequencePlace& place, const InferOptions& options, int rows, By by);

  /// What passes read: `data`, but for the input that grows. This object must outlive it.
  std::unique_ptr<const Dataset> reading(std::unique_ptr<const Dataset> data) const;
  /// As many passes as there may be.
  EpochShape shape() const;

  Step begin(int workers) override;
  Step completed(Step pass) override;
  std::int64_t done() const override { return made_; }
  std::int64_t all() const override;
  void finish() override;
  void locate(Operation& operation) const override;
  const PassPiece* piece(const Operation& operation) const override;
  void take(const Operation& operation, std::size_t output, const at::Tensor& values) override;

 private:
  struct Group {
    std::int64_t first = 0;
    int rows = 0;
    std::int64_t made = 0;
    bool ended = false;
  };
  static constexpr std::size_t kChunk = 1024;
  struct Chunk {
    std::array<PassPiece, kChunk> passes;
    std::size_t left = kChunk;  ///< not complete
  };
  PassPiece& pass_of(Step pass) const;
  void start_next();
  void start(std::size_t group, bool begins);
  std::vector<std::int64_t> samples_of(const Group& group) const;

  AtomicFile file_;
  std::string name_;
  Sequences sequences_;
  SequencePlace place_;
  GenerationOptions options_;
  std::uint64_t seed_;
  std::vector<Group> groups_;
  std::size_t started_ = 0;  ///< groups
  By by_;
  std::size_t begun_ = 0;  ///< passes
  /// Passes that have begun, until they are complete. The list never grows: workers read it.
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::size_t> ended_;  ///< groups, since the last pass began
  std::int64_t made_ = 0;
};

}  // namespace pp::run
