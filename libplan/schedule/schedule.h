// Schedules by name: one registry row per generator (what it needs, whether it is synchronous, which weight
// policies it allows) and the call that makes every worker's program. Adding a schedule adds one generator file
// and one row: no other code compares names, what it asks is a property of the row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/schedule/program_set.h"
#include "libprofile/core/enum_names.h"

namespace pp::plan {

/// Which version of the weights a micro-batch runs on: the only one, updated after a flush; the newest at its
/// forward, kept for its backward; the one its forward saw on stage 0, on every stage; the one before the
/// update in progress; the newest at its forward, updated every few micro-batches; whatever is newest, forward
/// and backward alike (a demonstration: the gradient of no function); the newest as the updates to come will
/// probably leave it, forward and backward each. Of replicas around a parameter server: its only version, made
/// of what all of them push; its newest, fetched every few mini-batches; one that lacks the last clocks of the
/// others at most; what stands in shared memory.
enum class WeightPolicy {
  flush,
  stash,
  vertical_sync,
  two_buffered,
  macrobatch,
  latest,
  predict,
  server,
  downpour,
  ssp,
  hogwild
};

/// How many micro-batches a replica of a stage keeps in flight (1F1B kinds).
enum class WindowRule { published, win, wide, explicit_list };

/// Micro-batches of a stage whose forward runs again before their backward.
enum class Recompute { never, except_last, always };

/// Stages on one worker that a schedule can have.
enum class Chunks { one, two, several };
/// Workers per stage that a schedule can have: one; the same number everywhere, as whole pipelines side by side
/// that each run their share of the micro-batches; the same number everywhere; any number.
enum class Replication { none, pipelines, equal, any };
/// What makes the programs of a schedule: its generator; a search with the costs at hand; a file.
enum class ProgramSource { generator, search, file };
/// Micro-batches below which a schedule is not what people expect of it: none; one per worker, so that all of
/// them work at once; 2*workers-1, so that there is no bubble.
enum class Filling { none, all_workers, bubble_free };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::WeightPolicy> {
  static constexpr std::array table{std::pair{plan::WeightPolicy::flush, "flush"sv},
                                    std::pair{plan::WeightPolicy::stash, "stash"sv},
                                    std::pair{plan::WeightPolicy::vertical_sync, "vertical_sync"sv},
                                    std::pair{plan::WeightPolicy::two_buffered, "two_buffered"sv},
                                    std::pair{plan::WeightPolicy::macrobatch, "macrobatch"sv},
                                    std::pair{plan::WeightPolicy::latest, "latest"sv},
                                    std::pair{plan::WeightPolicy::predict, "predict"sv},
                                    std::pair{plan::WeightPolicy::server, "server"sv},
                                    std::pair{plan::WeightPolicy::downpour, "downpour"sv},
                                    std::pair{plan::WeightPolicy::ssp, "ssp"sv},
                                    std::pair{plan::WeightPolicy::hogwild, "hogwild"sv}};
};
template <>
struct EnumNames<plan::WindowRule> {
  static constexpr std::array table{
      std::pair{plan::WindowRule::published, "published"sv}, std::pair{plan::WindowRule::win, "win"sv},
      std::pair{plan::WindowRule::wide, "wide"sv}, std::pair{plan::WindowRule::explicit_list, "explicit"sv}};
};
template <>
struct EnumNames<plan::Recompute> {
  static constexpr std::array table{std::pair{plan::Recompute::never, "never"sv},
                                    std::pair{plan::Recompute::except_last, "except_last"sv},
                                    std::pair{plan::Recompute::always, "always"sv}};
};
}  // namespace pp

namespace pp::plan {

struct ScheduleRequest {
  std::string name;
  /// One entry per place in the pipeline: how many workers stand there. Workers are numbered place by place,
  /// replica by replica. With one stage per worker a place is a stage; with v of them the K places hold K*v
  /// stages.
  std::vector<int> replicas;
  int micro_batches = 1;                   ///< per optimizer step; generation: sequence groups; partime: frames
  WindowRule window = WindowRule::win;     ///< read by the schedules of 1F1B kind
  std::vector<int> windows = {};           ///< explicit_list: one per stage
  int chunks_per_worker = 0;               ///< v; 0: the schedule's own (1, or 2 where it needs several)
  int group = 0;                           ///< interleaved: micro-batches per round of a chunk; 0: workers
  std::vector<int> in_flight_limits = {};  ///< dapple: per stage; empty: no limit
  std::vector<Recompute> recompute = {};   ///< per stage, or one for all; empty: never
  std::optional<WeightPolicy> weight_policy = {};  ///< unset: the schedule's default
  TokenLoop tokens = {};                           ///< generation: groups is ignored, barrier is read
  int token_count = 1;                             ///< generation: tokens per sequence group
  std::vector<int> forward_packs = {};             ///< harmony: stages per pack, in order; empty: one each
  std::vector<int> backward_packs = {};
  bool prefetch = false;  ///< harmony: a task's weights are loaded before the task in front of it runs
};

/// What one worker runs: a finite list per step, or a stream.
struct WorkerProgram {
  Program program;
  std::optional<Stream> stream;
  bool operator==(const WorkerProgram&) const = default;
};

/// What a generator makes: who holds which stage, and what everybody runs.
struct Schedule {
  std::vector<std::vector<WorkerId>> stage_workers;
  std::vector<WorkerProgram> workers;
  bool operator==(const Schedule&) const = default;
};

// By formula (closed_forms.h).
struct ClosedForm;
struct ShareTimes;
using FormOf = std::optional<ClosedForm>(const ScheduleRequest& request, const ShareTimes& times);
using BubbleOf = std::optional<double>(const ScheduleRequest& request, const ShareTimes& times, double latency);

struct ScheduleRow {
  std::string_view name;
  std::string_view summary;
  std::string_view needs =
      {};  ///< in K workers, M micro-batches per update, v stages per worker; empty: nothing
  bool synchronous = true;
  RuleSet rules = RuleSet::standard;
  Chunks chunks = Chunks::one;
  Replication replication = Replication::none;
  std::vector<WeightPolicy> policies{WeightPolicy::flush};  ///< the first is the default
  bool candidate = false;       ///< pp-plan --schedule auto tries it (asynchronous: with --allow-async)
  bool split_backward = false;  ///< may have I and W in place of B: needs their times
  bool any_count = false;       ///< updates after any number of micro-batches, under each of its policies
  bool windowed = false;        ///< reads ScheduleRequest::window
  bool wide = false;            ///< not windowed, but runs with the windows `wide`
  bool keeps_all = false;       ///< every micro-batch of the step is in flight
  bool last_first = false;      ///< then: backwards run from the last one to the first
  bool one_stage = false;       ///< the whole model on every worker
  bool splits = false;          ///< replicas share every micro-batch instead of taking turns
  bool limited = false;         ///< reads ScheduleRequest::in_flight_limits
  Filling filling = Filling::none;
  ProgramSource source = ProgramSource::generator;
  FormOf* closed_form = nullptr;    ///< of one isolated step; null: none is known
  BubbleOf* bubble_time = nullptr;  ///< null: none is known
  /// Why there are no plans with it, and what to use; it is generated, checked and simulated only. Empty: there
  /// are.
  std::string_view no_plan = {};
  /// Throws pp::Error (usage) with the restriction and the nearest legal value. Null for other sources.
  Schedule (*generate)(const ScheduleRequest& request) = nullptr;

  WeightPolicy default_policy() const { return policies.front(); }
};

const std::vector<ScheduleRow>& schedule_table();
const ScheduleRow* find_schedule(std::string_view name);
/// Throws pp::Error (usage) that lists the names.
const ScheduleRow& require_schedule(std::string_view name);

/// The row of programs that a file brings.
const ScheduleRow& schedule_of_files();

/// Checks the request against the schedule's row, makes the programs and puts the recomputations in.
/// O(operations). Throws pp::Error (usage): `schedule zb-v: chunks_per_worker = 3; it runs 2 stages per
/// worker`.
Schedule make_schedule(const ScheduleRequest& request);

/// What a legal request gives away, for people; empty: nothing. `schedule zb-h2: micro_batches = 4 is less than
/// 2*workers-1 = 7; the schedule is not bubble-free`.
std::string schedule_warning(const ScheduleRequest& request);

/// The finite set of a schedule; streams are written out for `stream_length` micro-batches (partime: frames).
ProgramSet program_set(const ScheduleRequest& request, const Schedule& schedule, int stream_length);
/// The same of make_schedule(request).
ProgramSet program_set(const ScheduleRequest& request, int stream_length = 0);

/// Stages per worker that a request means: its own number, or the schedule's default.
int chunks_of(const ScheduleRequest& request);

/// Micro-batches in flight per replica, per stage, not yet capped by the number of micro-batches. published:
/// ceil(suffix/r_s); win: 1 + ceil(win_{s+1} r_{s+1} / r_s); wide: 2*win-1. An explicit list has no rule:
/// throws pp::Error (internal).
std::vector<int> windows(WindowRule rule, std::span<const int> replicas);

/// The workers of each stage, numbered as ScheduleRequest::replicas says: what ProgramSet::stage_workers needs.
std::vector<std::vector<WorkerId>> replicated_placement(std::span<const int> replicas);

/// A replicated asynchronous stream needs every replica in every all-reduce. Throws pp::Error (usage) unless
/// `micro_batches`, the length of one epoch, is a multiple of each stage's replicas; names the nearest lengths
/// that are.
void check_stream_length(std::span<const int> replicas, int micro_batches);

/// Micro-batches after which the replicas of every stage take their turns of a stream as at its beginning,
/// whole updates of `per_update` micro-batches: the least common multiple of all these. Where that is more than
/// `most`: of `per_update` and the replicas of as many stages, the largest first, as stay within; of
/// `per_update` and the largest at least.
int stream_round(std::span<const int> replicas, int per_update, int most);

}  // namespace pp::plan
