// Schedules by name: one registry row per generator (what it needs, whether it is synchronous, which weight
// policies it allows) and the call that makes every worker's program. Adding a schedule adds one generator file
// and one row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/schedule/program.h"
#include "libprofile/core/enum_names.h"

namespace pp::plan {

enum class WeightPolicy { flush, stash };

/// How many micro-batches a replica of a stage keeps in flight (1F1B kinds; semantics.md, Windows).
enum class WindowRule { published, win, wide, explicit_list };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::WeightPolicy> {
  static constexpr std::array table{std::pair{plan::WeightPolicy::flush, "flush"sv},
                                    std::pair{plan::WeightPolicy::stash, "stash"sv}};
};
template <>
struct EnumNames<plan::WindowRule> {
  static constexpr std::array table{
      std::pair{plan::WindowRule::published, "published"sv}, std::pair{plan::WindowRule::win, "win"sv},
      std::pair{plan::WindowRule::wide, "wide"sv}, std::pair{plan::WindowRule::explicit_list, "explicit"sv}};
};
}  // namespace pp

namespace pp::plan {

struct ScheduleRequest {
  std::string name;
  std::vector<int> replicas;            ///< per stage; workers are numbered stage by stage, replica by replica
  int micro_batches = 1;                ///< per optimizer step; asynchronous pipedream: 1
  WindowRule window = WindowRule::win;  ///< read by the schedules of 1F1B kind
  std::vector<int> windows;             ///< explicit_list: one per stage
};

/// What one worker runs: a finite list per step, or a stream.
struct WorkerProgram {
  Program program;
  std::optional<Stream> stream;
  bool operator==(const WorkerProgram&) const = default;
};

struct ScheduleRow {
  std::string_view name;
  std::string_view summary;
  std::string_view needs;  ///< the documented restriction, for people; empty: none
  bool synchronous = true;
  WeightPolicy default_policy = WeightPolicy::flush;
  /// Throws pp::Error (usage) with the restriction and the nearest legal value.
  std::vector<WorkerProgram> (*generate)(const ScheduleRequest& request);
};

const std::vector<ScheduleRow>& schedule_table();
const ScheduleRow* find_schedule(std::string_view name);
/// Throws pp::Error (usage) that lists the names.
const ScheduleRow& require_schedule(std::string_view name);

/// Micro-batches in flight per replica, per stage (planning.md 2.6), not yet capped by the number of
/// micro-batches. published: ceil(suffix/r_s); win: 1 + ceil(win_{s+1} r_{s+1} / r_s); wide: 2*win-1. An
/// explicit list has no rule: throws pp::Error (internal).
std::vector<int> windows(WindowRule rule, std::span<const int> replicas);

/// First worker of each stage, and one past the last at the end: [0, r_0, r_0 + r_1, ...].
std::vector<int> first_workers(std::span<const int> replicas);

/// The workers of each stage, numbered as ScheduleRequest::replicas says: what ProgramSet::stage_workers needs.
std::vector<std::vector<WorkerId>> replicated_placement(std::span<const int> replicas);

/// A replicated asynchronous stream needs every replica in every all-reduce. Throws pp::Error (usage) unless
/// `micro_batches`, the length of one epoch, is a multiple of each stage's replicas; names the nearest lengths
/// that are.
void check_stream_length(std::span<const int> replicas, int micro_batches);

}  // namespace pp::plan
