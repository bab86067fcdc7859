// How the learning rate goes over a training: a pure function of the step, whatever the plan, the process or
// the number of its restarts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "librun/options/position.h"

namespace pp::run {

enum class RateKind { constant, step, cosine, table };

/// With base rate r, W warm-up steps, T steps in all, and t counted from 0:
///
/// | kind | rate of step t >= W |
/// |---|---|
/// | constant | r |
/// | step | r * factor^floor((t - W) / period) |
/// | cosine | least + (r - least) * (1 + cos(pi (t - W) / (T - W))) / 2 (Loshchilov and Hutter, ICLR'17, one
/// period) | | table | the entry with the largest step that is not above t; r does not count |
///
/// Warm-up: r * (t + 1) / W at t < W (of the table's rate at W).
struct RateSchedule {
  RateKind kind = RateKind::constant;
  Step warm_up = 0;
  Step period = 1;
  double factor = 0.1;
  double least = 0;
  std::vector<std::pair<Step, double>> table = {};  ///< ascending steps, the first one 0
};

/// `total`: steps of the whole training.
double rate_at(const RateSchedule& schedule, double base, Step total, Step step);

/// Lines of a step and a rate, `0 0.1`, steps ascending from 0; empty lines and what follows `#` do not count.
/// Throws pp::Error (data): `rates.txt:3: ...`.
std::vector<std::pair<Step, double>> read_rates(const std::filesystem::path& path);

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::RateKind> {
  static constexpr std::array table{
      std::pair{run::RateKind::constant, "constant"sv}, std::pair{run::RateKind::step, "step"sv},
      std::pair{run::RateKind::cosine, "cosine"sv}, std::pair{run::RateKind::table, "table"sv}};
};
}  // namespace pp
