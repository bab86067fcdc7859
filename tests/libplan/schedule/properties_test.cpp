// Every generator over a grid of workers, micro-batches and chunks: its programs are valid or the request is
// refused with the documented restriction; no simulation beats what one worker or one micro-batch needs at
// least.
#include <algorithm>

#include "libplan/schedule/queues.h"
#include "libplan/schedule/versions.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::error_of;

/// The documented refusals, for requests of the grid.
bool documented(const std::string& refusal) {
  static const std::vector<std::string> kRestrictions{
      "needs micro_batches = 1, found",               // naive, pipedream
      "is not a multiple of",                         // interleaved, chimera
      "is less than 2*workers",                       // dualpipe-v
      "is odd",                                       // chimera
      "; every worker needs one",                     // harmony-dp
      "per update is less than",                      // 2bw, macrobatch
      "every replica holds the whole model",          // data-parallel
      "chunks_per_worker = ",                         // wrong number of stages per worker
      "its programs come from costs or from a file",  // auto-zb, custom
  };
  return std::ranges::any_of(kRestrictions,
                             [&](const std::string& text) { return refusal.find(text) != std::string::npos; });
}

template <class Visit>
void for_each_request(Visit visit) {
  for (const ScheduleRow& row : schedule_table()) {
    for (int k = 1; k <= 8; ++k) {
      for (const int m : {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32}) {
        for (int v = 1; v <= 4; ++v) {
          ScheduleRequest request{std::string(row.name), std::vector<int>(at(k), 1), m, WindowRule::win, {}};
          request.chunks_per_worker = v;
          request.token_count = row.name == "generation" ? 3 : 1;
          visit(row, request);
        }
      }
    }
  }
}

constexpr int kStream = 24;

TEST_SUITE("libplan/schedule/properties") {
  TEST_CASE("every generator's programs are valid, or refused with a documented restriction") {
    int valid = 0;
    int refused = 0;
    for_each_request([&](const ScheduleRow& row, const ScheduleRequest& request) {
      INFO(row.name);
      CAPTURE(request.replicas.size());
      CAPTURE(request.micro_batches);
      CAPTURE(request.chunks_per_worker);
      const std::string refusal = error_of([&] { make_schedule(request); });
      if (!refusal.empty()) {
        CHECK(refusal.starts_with("schedule " + request.name + ": "));
        CHECK_MESSAGE(documented(refusal), refusal);
        ++refused;
        return;
      }
      const int length =
          row.rules == RuleSet::clocked ? request.micro_batches : kStream * request.micro_batches;
      const std::string error = error_of([&] { validate(program_set(request, length)); });
      CHECK(error == "");
      ++valid;
    });
    CHECK(valid > 2000);
    CHECK(refused > 2000);
  }

  TEST_CASE("recomputation is valid with every synchronous schedule, early and late") {
    for_each_request([&](const ScheduleRow& row, ScheduleRequest request) {
      if (request.micro_batches > 8 || row.rules != RuleSet::standard || !row.synchronous) return;
      for (const Recompute mode : {Recompute::always, Recompute::except_last}) {
        request.recompute = {mode};
        if (!error_of([&] { make_schedule(request); }).empty()) return;
        for (const RecomputeStart start : {RecomputeStart::early, RecomputeStart::late}) {
          ProgramSet set = program_set(request);
          set.recompute_start = start;
          INFO(row.name);
          CHECK(error_of([&] { validate(set); }) == "");
        }
      }
    });
  }

  TEST_CASE("gradients are added in the order 0..M-1 where weights are promised bit-equal") {
    for (const std::string name :
         {"gpipe", "1f1b", "dapple-pa", "dapple-pb", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"}) {
      const ProgramSet set = program_set({name, {1, 1, 1, 1}, 8, WindowRule::win, {}});
      std::vector<int> next(set.stage_workers.size(), 0);
      for (const Program& program : set.workers) {
        for (const Op& op : program) {
          if (completes_backward(op.kind)) CHECK(op.micro_batch == next[index(op.stage)]++);
        }
      }
      for (const int count : next) CHECK(count == 8);
    }
  }

  TEST_CASE("a queue of one message is enough for gpipe and 1f1b, blocking sends stop 1f1b only") {
    // 1F1B's steady state: a stage sends an activation to the next one while that one sends a gradient back.
    for (int k = 2; k <= 4; ++k) {
      const ProgramSet gpipe = program_set({"gpipe", std::vector<int>(at(k), 1), 6, WindowRule::win, {}});
      const ProgramSet flush = program_set({"1f1b", std::vector<int>(at(k), 1), 6, WindowRule::win, {}});
      CHECK(error_of([&] { check_queues(gpipe, kRendezvous); }) == "");
      CHECK(error_of([&] { check_queues(gpipe, 1); }) == "");
      CHECK(error_of([&] { check_queues(flush, 1); }) == "");
      CHECK(error_of([&] {
              check_queues(flush, kRendezvous);
            }).starts_with("plan: deadlock with blocking sends after "));
    }
    // Two stages: worker 0 has run F0.0, F0.1 and wants to hand F0.1 over; worker 1 has run F1.0 and B1.0 and
    // wants to hand B1.0 over. Three of the ten operations would follow.
    CHECK(error_of([] { check_queues(test::straight("1f1b", 2, 2), kRendezvous); }) ==
          "plan: deadlock with blocking sends after 4 of 10 operations\n"
          "  worker 0: sends F0.1 to F1.1 (worker 1)\n"
          "  worker 1: sends B1.0 to B0.0 (worker 0)");
  }

  TEST_CASE("queues of some length carry every schedule") {
    for_each_request([&](const ScheduleRow& row, const ScheduleRequest& request) {
      if (request.micro_batches > 8 || request.replicas.size() > 4) return;
      if (!error_of([&] { make_schedule(request); }).empty()) return;
      const ProgramSet set = program_set(request, kStream);
      INFO(row.name);
      CHECK(error_of([&] { check_queues(set, 8 * set.micro_batches); }) == "");
    });
  }

  TEST_CASE("asynchronous kinds keep the published versions") {
    for (int k = 1; k <= 5; ++k) {
      const std::vector<int> replicas(at(k), 1);
      const auto versions = [&](const std::string& name, int per_update) {
        const ScheduleRequest request{name, replicas, per_update, WindowRule::win, {}};
        return live_versions(program_set(request, 12 * per_update), require_schedule(name).default_policy());
      };
      const auto kept = [&](const std::string& name, int per_update) {
        std::vector<int> result;
        for (int s = 0; s < k; ++s)
          result.push_back(versions_kept(require_schedule(name).default_policy(), k - s, k, per_update));
        return result;
      };
      for (const char* name : {"pipedream", "vertical-sync", "spectrain", "xpipe"})
        CHECK(versions(name, 1) == kept(name, 1));
      for (const char* name : {"2bw", "macrobatch", "xpipe"}) CHECK(versions(name, 2 * k) == kept(name, 2 * k));
      std::vector<int> stash;
      for (int s = 0; s < k; ++s) stash.push_back(k - s);
      CHECK(versions("pipedream", 1) == stash);
      CHECK(versions("vertical-sync", 1) == std::vector<int>(replicas.size(), k));
      // The newest and what is predicted; the last stage of one or two looks ahead by nothing.
      std::vector<int> spectrain(replicas.size(), 2);
      if (k <= 2) spectrain.back() = 1;
      CHECK(versions("spectrain", 1) == spectrain);
      // And what the micro-batches of a mini-batch share.
      std::vector<int> xpipe(replicas.size(), 3);
      if (k <= 2) xpipe.back() = 1;
      for (const int m : {2, 3, 8}) CHECK(versions("xpipe", m) == xpipe);
      CHECK(versions("xpipe", 1) == spectrain);
      for (const int m : {k, k + 1, 2 * k, 3 * k + 1}) {
        for (const int found : versions("2bw", m)) CHECK(found == 2);
        for (const int found : versions("macrobatch", m)) CHECK(found <= 2);
      }
    }
  }

  TEST_CASE("predict looks ahead by floor(k/2) + N-k-1 in the forward and floor(k/2) in the backward") {
    const std::vector<LookAhead> four{{3, 0}, {2, 0}, {2, 1}, {1, 1}};
    for (int k = 0; k < 4; ++k) CHECK(look_ahead(k, 4) == four[at(k)]);
    CHECK(look_ahead(0, 1) == LookAhead{});
    CHECK(look_ahead(1, 2) == LookAhead{});
    // Two micro-batches an update: half of it, rounded up.
    const std::vector<LookAhead> halves{{2, 0}, {1, 0}, {1, 1}, {1, 1}};
    for (int k = 0; k < 4; ++k) CHECK(look_ahead(k, 4, 2) == halves[at(k)]);
    CHECK(look_ahead(0, 1, 4) == LookAhead{});
    CHECK(look_ahead(1, 2, 4) == LookAhead{});
    const ProgramSet replicated = program_set({"pipedream", {2, 1}, 1, WindowRule::win, {}}, 8);
    CHECK(error_of([&] { live_versions(replicated, WeightPolicy::predict); }) ==
          "stage 0 has 2 replicas; weight policy predict needs a straight pipeline");
  }

  TEST_CASE("a version that does not exist yet, or a third one, is refused with the operation") {
    // K = 4, an update every 2 micro-batches. Worker 0 lists F0.0 to F0.3, B0.0, F0.4: micro-batch 4 belongs to
    // update 2 and needs version 1, which the U after B0.1 will make.
    ProgramSet set = program_set({"macrobatch", {1, 1, 1, 1}, 4, WindowRule::win, {}}, 16);
    set.backwards_per_update = 2;
    for (std::size_t s = 0; s < 4; ++s) {
      Program program;
      int backwards = 0;
      for (const Op& op : set.workers[s]) {
        if (op.kind == OpKind::update) continue;
        program.push_back(op);
        if (completes_backward(op.kind) && ++backwards % 2 == 0)
          program.push_back({OpKind::update, op.stage, 0});
      }
      set.workers[s] = program;
    }
    CHECK_NOTHROW(validate(set));
    const std::string late = error_of([&] { live_versions(set, WeightPolicy::two_buffered); });
    CHECK(late ==
          "worker 0, operation 5 (F0.4): needs version 1 of stage 0, the newest is 0; update less often, or "
          "keep fewer "
          "micro-batches in flight");
    CHECK(error_of([&] {
            live_versions(set, WeightPolicy::macrobatch);
          }).find("versions of stage 0 alive, weight policy macrobatch keeps 2") != std::string::npos);
  }
}

}  // namespace
}  // namespace pp::plan
