#include "apps/run/keep_going/launch_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"

namespace pp::run_tool {

namespace {

namespace fs = std::filesystem;
constexpr auto kStep = "step", kFailedMark = "failed", kEnded = "ended", kLost = "lost.json",
               kSpeedsFile = "speeds.json";
constexpr std::size_t kWidth = 20;  // of a step, so that it is replaced in one write

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Adds a line to the file, which is there from then on.
void mark(const fs::path& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const std::string line = text + '\n';
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

std::string step_text(std::int64_t step) {
  std::string text = std::to_string(step);
  text.resize(kWidth, ' ');
  return text;
}

}  // namespace

LaunchState::LaunchState(fs::path folder) : folder_(std::move(folder)) {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) throw Error(ErrorKind::usage, folder_.string() + ": cannot be made: " + failure.message());
}

void LaunchState::begin(std::int64_t first_step, const std::vector<run::LostAttempt>& earlier) const {
  std::error_code ignored;
  for (const char* const name : {kFailedMark, kEnded, kSpeedsFile}) fs::remove(folder_ / name, ignored);
  Json rows = Json::array();
  for (const run::LostAttempt& one : earlier) rows.push_back(run::to_json(one));
  write_file(folder_ / kLost, dump_json(Json{{"lost_attempts", std::move(rows)}}));
  write_file(folder_ / kStep, step_text(first_step));
}

std::int64_t LaunchState::step() const {
  std::int64_t step = 0;
  std::ifstream(folder_ / kStep) >> step;
  return step;
}

bool LaunchState::failed() const { return is_there(folder_ / kFailedMark); }

std::string LaunchState::reason() const {
  std::string reason;
  std::ifstream file(folder_ / kFailedMark);
  std::getline(file, reason);
  return reason;
}

bool LaunchState::ended() const { return is_there(folder_ / kEnded); }

std::optional<ToldSpeeds> LaunchState::speeds() const {
  const fs::path file = folder_ / kSpeedsFile;
  if (!is_there(file)) return std::nullopt;
  try {
    const Json json = parse_json(read_file(file));
    ObjectReader reader(json, "");
    return ToldSpeeds{reader.numbers("factors", {.min = 1e-9, .max = 1e9}), reader.integer("steps")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

LaunchedRank::LaunchedRank(fs::path folder)
    : folder_(std::move(folder)), step_(open((folder_ / kStep).c_str(), O_WRONLY | O_CLOEXEC)) {}

LaunchedRank::~LaunchedRank() {
  if (step_ >= 0) close(step_);
}

void LaunchedRank::step(std::int64_t step) const {
  const std::string text = step_text(step);
  if (step_ >= 0) [[maybe_unused]]
    const ssize_t written = pwrite(step_, text.data(), text.size(), 0);
}

void LaunchedRank::failed(const std::string& reason) const { mark(folder_ / kFailedMark, reason); }
void LaunchedRank::ended() const { mark(folder_ / kEnded, "ended"); }

void LaunchedRank::speeds(const ToldSpeeds& speeds) const {
  const fs::path whole = folder_ / kSpeedsFile, part = folder_ / (std::string(kSpeedsFile) + ".part");
  std::error_code ignored;
  try {
    write_file(part, dump_json(Json{{"factors", speeds.factors}, {"steps", speeds.steps}}));
    fs::rename(part, whole, ignored);
  } catch (const Error&) {
  }
}

std::vector<run::LostAttempt> LaunchedRank::earlier() const {
  std::vector<run::LostAttempt> lost;
  const fs::path file = folder_ / kLost;
  with_context(file.string(), [&] {
    const Json json = parse_json(read_file(file));
    ObjectReader reader(json, "");
    reader.objects("lost_attempts", [&](ObjectReader& row) { lost.push_back(run::read_lost_attempt(row)); });
    reader.finish();
  });
  return lost;
}

}  // namespace pp::run_tool
