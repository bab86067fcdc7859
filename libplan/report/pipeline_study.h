// Tables of a pipeline's forwards at several numbers of micro-batches, as the VGG16 pipeline report (Shankar)
// has them: time(m), efficiency, and the m that is best. From printed times of stages, or
// from a profile (profile_study.h). `pp-plan study` prints them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/fields.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The stages at one number of micro-batches.
struct StageTimeRow {
  int micro_batches = 1;
  std::vector<Seconds> stages = {};    ///< compute for one micro-batch, and maybe the transfer into the stage
  std::optional<double> printed = {};  ///< the efficiency that the source prints, 0..1
  bool operator==(const StageTimeRow&) const = default;
};

struct StageTimeTable {
  std::string title;                    ///< `table 4.2, without communication`
  std::string remark = {};              ///< may be empty
  std::vector<StageTimeRow> rows = {};  ///< ascending micro-batches, the same stages
  std::optional<double> printed_mean = {};
  bool operator==(const StageTimeTable&) const = default;
};

/// The document pp.stage-times.
struct StageTimeTables {
  std::string name;
  std::string source;
  std::vector<StageTimeTable> tables;
  bool operator==(const StageTimeTables&) const = default;
};

/// A printed figure against the same recomputed from its own inputs.
enum class Printed {
  agrees,   ///< at the digits of the table
  cut_off,  ///< it agrees, too, but was cut off and not rounded
  wrong     ///< it does not follow from the inputs
};

/// How time(m) goes with m, but for steps of less than kNoStep.
enum class Course { falls, rises, falls_then_rises, mixed };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::Printed> {
  static constexpr std::array table{std::pair{plan::Printed::agrees, "agrees"sv},
                                    std::pair{plan::Printed::cut_off, "cut_off"sv},
                                    std::pair{plan::Printed::wrong, "wrong"sv}};
};
template <>
struct EnumNames<plan::Course> {
  static constexpr std::array table{std::pair{plan::Course::falls, "falls"sv},
                                    std::pair{plan::Course::rises, "rises"sv},
                                    std::pair{plan::Course::falls_then_rises, "falls_then_rises"sv},
                                    std::pair{plan::Course::mixed, "mixed"sv}};
};
}  // namespace pp

namespace pp::plan {

/// Digits of an efficiency in percent behind the point, by which Printed is judged.
inline constexpr int kEfficiencyDigits = 2;

/// Share of a time that counts as nothing: measured times are no more exact.
inline constexpr double kNoStep = 0.02;

struct CheckedFigure {
  double printed = 0;
  Printed verdict = Printed::agrees;
  bool operator==(const CheckedFigure&) const = default;
};

struct StudyRow {
  int micro_batches = 1;
  std::vector<Seconds> stages = {};  ///< of one micro-batch
  Seconds time{};                    ///< time(m), forward_time()
  Seconds serial{};                  ///< m sum S_i: one micro-batch after the other
  double efficiency = 0;             ///< partition_efficiency(), 0..1
  std::optional<CheckedFigure> printed = {};
  bool operator==(const StudyRow&) const = default;
};

struct StudyTable {
  std::string title;
  std::string remark = {};
  std::vector<StudyRow> rows = {};  ///< ascending micro-batches
  double mean_efficiency = 0;
  std::optional<CheckedFigure> printed_mean = {};
  std::size_t best = 0;  ///< the row of the least time; of equal ones the fewest micro-batches
  Course course = Course::mixed;
  bool operator==(const StudyTable&) const = default;
};

struct PipelineStudy {
  std::string name;
  std::string source;
  std::vector<StudyTable> tables;
  bool operator==(const PipelineStudy&) const = default;
};

/// The formulas of the report (schedule/closed_forms.h) for every column of every table.
PipelineStudy study(const StageTimeTables& times);

/// A figure of the source beside ours, both 0..1, at kEfficiencyDigits of a percent.
CheckedFigure check_printed(double printed, double recomputed);

Keys stage_times_keys();
StageTimeTables stage_times_from_json(const Json& json);
Json to_json(const StageTimeTables& times);
/// What `pp-plan study` reads: a pp.stage-times or a pp.profile. Throws pp::Error (data).
std::variant<StageTimeTables, Profile> parse_study_input(std::string_view text);

/// Seconds and shares; what a table does not have is left out.
Json to_json(const PipelineStudy& study);
/// One record per row of every table behind a header, as sweep_csv().
std::string study_csv(const PipelineStudy& study);

}  // namespace pp::plan
