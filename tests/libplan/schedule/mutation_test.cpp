// The validator against an oracle that knows nothing but the table of dependencies: it keeps executed
// operations in a set and tries every worker until nothing moves.
#include <algorithm>
#include <set>

#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::straight;
using test::written;

using Done = std::set<std::string>;

std::string text(const char* kind, int stage, int micro_batch) {
  return kind + std::to_string(stage) + "." + std::to_string(micro_batch);
}

bool has_backward(const Done& done, int stage, int m) {
  return done.contains(text("B", stage, m)) || done.contains(text("I", stage, m));
}

bool all_backwards_done(const Program& program, std::size_t position, StageId stage) {
  return std::none_of(
      program.begin() + static_cast<std::ptrdiff_t>(position), program.end(), [&](const Op& op) {
        return op.stage == stage && (op.kind == OpKind::backward || op.kind == OpKind::weight_gradient);
      });
}

/// Synchronous sets with a chain of stages, where only the order of complete lists is in question.
class Oracle {
 public:
  explicit Oracle(const ProgramSet& set) : set_(set), position_(set.workers.size(), 0) {}

  bool legal() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < set_.workers.size(); ++w) {
        while (position_[w] < set_.workers[w].size() && may_run(w)) {
          const Op& op = set_.workers[w][position_[w]++];
          done_.insert(to_text(op) + (has_micro_batch(op.kind) ? "" : " on " + std::to_string(w)));
          moved = true;
        }
      }
    }
    for (std::size_t w = 0; w < set_.workers.size(); ++w) {
      if (position_[w] < set_.workers[w].size()) return false;
    }
    return true;
  }

 private:
  bool may_run(std::size_t w) const {
    const Op& op = set_.workers[w][position_[w]];
    const int s = number(op.stage);
    const int last = static_cast<int>(set_.stage_workers.size()) - 1;
    switch (op.kind) {
      case OpKind::forward: return s == 0 || done_.contains(text("F", s - 1, op.micro_batch));
      case OpKind::backward:
      case OpKind::input_gradient:
        return done_.contains(text("F", s, op.micro_batch)) &&
               (s == last || has_backward(done_, s + 1, op.micro_batch));
      case OpKind::weight_gradient: return done_.contains(text("I", s, op.micro_batch));
      case OpKind::recompute: return done_.contains(text("F", s, op.micro_batch));
      case OpKind::all_reduce:
        return std::ranges::all_of(set_.stage_workers[pp::index(op.stage)],
                                   [&](WorkerId other) { return reached(other, op); });
      case OpKind::update:
        return all_backwards_done(set_.workers[w], position_[w], op.stage) &&
               (set_.stage_workers[pp::index(op.stage)].size() == 1 ||
                done_.contains("AR" + std::to_string(s) + " on " + std::to_string(w)));
      case OpKind::tied_all_reduce:
      case OpKind::load:
      case OpKind::evict: return false;  // no shared parameters and no swaps in these sets
    }
    return false;
  }

  /// Worker `other` stands at its AR of the same stage, all backwards behind it, or has passed it.
  bool reached(WorkerId other, const Op& reduce) const {
    const Program& program = set_.workers[index(other)];
    const auto found = at(std::ranges::find(program, reduce) - program.begin());
    return position_[index(other)] >= found && all_backwards_done(program, found, reduce.stage);
  }

  const ProgramSet& set_;
  std::vector<std::size_t> position_;
  Done done_;
};

bool accepted(const ProgramSet& set) {
  return test::error_of([&] { validate(set); }).empty();
}

/// Calls visit(mutant, description) for every exchange of two operations of one worker.
template <class Visit>
void for_each_swap(const ProgramSet& set, Visit visit) {
  for (std::size_t w = 0; w < set.workers.size(); ++w) {
    for (std::size_t i = 0; i < set.workers[w].size(); ++i) {
      for (std::size_t j = i + 1; j < set.workers[w].size(); ++j) {
        ProgramSet mutant = set;
        std::swap(mutant.workers[w][i], mutant.workers[w][j]);
        visit(mutant, "worker " + std::to_string(w) + ": " + std::to_string(i) + " and " + std::to_string(j));
      }
    }
  }
}

std::vector<ProgramSet> specimens() {
  const auto places = [](const std::string& name, int workers, int micro_batches) {
    return program_set({name, std::vector<int>(at(workers), 1), micro_batches, WindowRule::win, {}});
  };
  return {
      places("zb-h1", 3, 3), places("zb-h2", 3, 4), places("interleaved", 2, 2), places("looped-bfs", 2, 2),
      places("zb-v", 2, 3), places("dualpipe-v", 2, 4), places("chimera", 2, 2), straight("gpipe", 3, 4),
      straight("1f1b", 3, 4), program_set({"1f1b", {2, 1}, 4, WindowRule::win, {}}),
      program_set({"1f1b", {1, 2, 1}, 3, WindowRule::win, {}}),
      // Split backwards, two stages per worker in V order, recompute.
      written({"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1 U0", "F1.0 I1.0 F1.1 W1.0 I1.1 W1.1 U1"}, {{0}, {1}}, 2),
      written(
          {"F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 B0.0 B0.1 U0 U3", "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1 U1 U2"},
          {{0}, {1}, {1}, {0}}, 2),
      // Two copies in opposite directions, each with its own micro-batch.
      written({"F0.0 F1.1 B1.1 B0.0 AR0 AR1 U0 U1", "F0.1 F1.0 B1.0 B0.1 AR0 AR1 U0 U1"}, {{0, 1}, {1, 0}}, 2)};
}

TEST_SUITE("libplan/schedule/mutation") {
  TEST_CASE("exchanging two operations is refused exactly when it breaks a dependency") {
    int legal = 0;
    int mutants = 0;
    for (const ProgramSet& set : specimens()) {
      REQUIRE(accepted(set));
      REQUIRE(Oracle(set).legal());
      for_each_swap(set, [&](const ProgramSet& mutant, const std::string& description) {
        const bool wanted = Oracle(mutant).legal();
        INFO(to_text(mutant.workers[0]));
        INFO(description);
        CHECK(accepted(mutant) == wanted);
        ++mutants;
        legal += wanted;
      });
    }
    CHECK(legal > 20);
    CHECK(mutants - legal > 200);
  }

  TEST_CASE("a dropped or repeated operation is refused") {
    std::vector<ProgramSet> sets = specimens();
    sets.push_back(program_set({"pipedream", {1, 1, 1}, 1, WindowRule::win, {}}, 4));
    sets.push_back(program_set({"pipedream", {2, 1}, 1, WindowRule::win, {}}, 4));
    for (const ProgramSet& set : sets) {
      REQUIRE(accepted(set));
      for (std::size_t w = 0; w < set.workers.size(); ++w) {
        for (std::ptrdiff_t i = 0; i < std::ssize(set.workers[w]); ++i) {
          ProgramSet shorter = set;
          shorter.workers[w].erase(shorter.workers[w].begin() + i);
          CHECK_FALSE(accepted(shorter));
          ProgramSet longer = set;
          longer.workers[w].insert(longer.workers[w].begin() + i, set.workers[w][at(i)]);
          CHECK_FALSE(accepted(longer));
        }
      }
    }
  }

  TEST_CASE("an exchange in an asynchronous list is refused when U no longer follows its backward") {
    const ProgramSet set = program_set({"pipedream", {2, 1}, 1, WindowRule::win, {}}, 4);
    for_each_swap(set, [&](const ProgramSet& mutant, const std::string& description) {
      INFO(description);
      for (const Program& program : mutant.workers) {
        // Without the forwards a list must read B U B U ..., or B AR U when the stage is replicated.
        std::string kinds;
        for (const Op& op : program) kinds.append(op.kind == OpKind::forward ? "" : name_of(op.kind));
        const bool in_order = kinds == "BARUBARU" || kinds == "BUBUBUBU";
        if (!in_order) CHECK_FALSE(accepted(mutant));
      }
    });
  }
}

}  // namespace
}  // namespace pp::plan
