#include "libplan/schedule/program_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "libplan/schedule/program.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

[[noreturn]] void fail(std::size_t position, std::string_view token, const std::string& message) {
  throw Error(ErrorKind::data,
              "operation " + std::to_string(position) + ", \"" + std::string(token) + "\": " + message);
}

/// Digits only, at most 2147483647.
std::optional<int> parse_index(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || digits.front() == '-' || error != std::errc{} || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

Op parse_op(std::string_view token, std::size_t position) {
  const std::size_t letters = std::min(token.find_first_of(".-0123456789"), token.size());
  const auto kind = find_enum<OpKind>(token.substr(0, letters));
  if (!kind) fail(position, token, "unknown kind; use " + list_names<OpKind>());

  const std::string_view rest = token.substr(letters);
  const std::size_t dot = rest.find('.');
  const auto stage = parse_index(rest.substr(0, dot));
  const std::string name(name_of(*kind));
  if (*kind == OpKind::tied_all_reduce) {
    if (!stage || dot != rest.npos) fail(position, token, "ARg takes a group and nothing else, as in ARg0");
    return {*kind, StageId{0}, *stage};
  }
  if (!has_micro_batch(*kind)) {
    if (!stage || dot != rest.npos)
      fail(position, token, name + " takes a stage and nothing else, as in " + name + "2");
    return {*kind, StageId{*stage}, 0};
  }
  const auto micro_batch = dot == rest.npos ? std::nullopt : parse_index(rest.substr(dot + 1));
  if (!stage || !micro_batch) {
    fail(position, token, name + " takes a stage and a micro-batch, as in " + name + "2.1");
  }
  return {*kind, StageId{*stage}, *micro_batch};
}

void append_text(std::string& text, const Op& op) {
  const bool tied = op.kind == OpKind::tied_all_reduce;
  text.append(name_of(op.kind)).append(std::to_string(tied ? op.micro_batch : number(op.stage)));
  if (has_micro_batch(op.kind)) text.append(".").append(std::to_string(op.micro_batch));
}

constexpr std::string_view kBlanks = " \t\r\"";

std::string_view trim(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = text.find_last_not_of(kBlanks);
  return end == text.npos ? std::string_view{} : text.substr(begin, end + 1 - begin);
}

/// Calls visit(part, position) for the parts of `text` between separators.
template <class Visit>
void for_each_part(std::string_view text, char separator, Visit visit) {
  for (int position = 0;; ++position) {
    const std::size_t end = std::min(text.find(separator), text.size());
    visit(text.substr(0, end), position);
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

/// Digits at the front of `text`, which loses them; -1: none, or too many.
int take_number(std::string_view& text) {
  int value = -1;
  if (text.empty() || text.front() == '-') return value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(at(end - text.data()));
  return error == std::errc{} ? value : -1;
}

std::optional<Op> parse_cell(std::string_view cell) {
  const int stage = take_number(cell);
  const std::size_t letters = std::min(cell.find_first_of("0123456789"), cell.size());
  const auto kind = find_enum<OpKind>(cell.substr(0, letters));
  cell.remove_prefix(letters);
  const int micro_batch = take_number(cell);
  if (stage < 0 || micro_batch < 0 || !kind || !has_micro_batch(*kind) || !cell.empty()) return std::nullopt;
  return Op{*kind, StageId{stage}, micro_batch};
}

Program parse_row(std::string_view row, int number) {
  Program program;
  for_each_part(row, ',', [&](std::string_view cell, int position) {
    cell = trim(cell);
    if (cell.empty()) return;
    const auto op = parse_cell(cell);
    if (op) return program.push_back(*op);
    throw Error(ErrorKind::data, "row " + std::to_string(number) + ", cell " + std::to_string(position) +
                                     ", \"" + std::string(cell) +
                                     "\": give stage, kind and micro-batch, as in 1F2; kinds are "
                                     "F, B, I, W, R");
  });
  return program;
}

/// Stage -> the workers that list it. Stages are numbered without holes.
std::map<StageId, std::set<WorkerId>> holders(const std::vector<Program>& workers) {
  std::map<StageId, std::set<WorkerId>> held;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    for (const Op& op : workers[w]) held[op.stage].insert(WorkerId{static_cast<int>(w)});
  }
  int expected = 0;
  for (const auto& [stage, list] : held) {
    if (number(stage) == expected++) continue;
    throw Error(ErrorKind::data, "stage " + std::to_string(expected - 1) + " is in no row, stage " +
                                     std::to_string(number(stage)) +
                                     " is; number the stages from 0 without holes");
  }
  return held;
}

}  // namespace

std::string to_text(const Op& op) {
  std::string text;
  append_text(text, op);
  return text;
}

std::string to_text(std::span<const Op> program) {
  std::string text;
  for (const Op& op : program) {
    if (!text.empty()) text.push_back(' ');
    append_text(text, op);
  }
  return text;
}

Program parse_program(std::string_view text) {
  Program program;
  for (std::size_t begin = text.find_first_not_of(kSpaces); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, begin), text.size());
    program.push_back(parse_op(text.substr(begin, end - begin), program.size()));
    begin = text.find_first_not_of(kSpaces, end);
  }
  return program;
}

std::string to_csv(const ProgramSet& set) {
  std::string text;
  for (const Program& program : set.workers) {
    bool first = true;
    for (const Op& op : program) {
      if (!has_micro_batch(op.kind)) continue;
      text.append(std::exchange(first, false) ? "" : ",").append(std::to_string(number(op.stage)));
      text.append(name_of(op.kind)).append(std::to_string(op.micro_batch));
    }
    text.push_back('\n');
  }
  return text;
}

ProgramSet parse_csv(std::string_view text) {
  ProgramSet set;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for_each_part(text, '\n', [&](std::string_view row, int number) {
    set.workers.push_back(parse_row(row, number));
    if (!set.workers.back().empty()) return;
    throw Error(ErrorKind::data, "row " + std::to_string(number) +
                                     ": no operations; give one row of cells per worker, as in 0F0,0B0");
  });
  const auto held = holders(set.workers);
  for (const auto& [stage, workers] : held) set.stage_workers.emplace_back(workers.begin(), workers.end());
  for (Program& program : set.workers) {
    std::set<StageId> stages;
    for (const Op& op : program) {
      stages.insert(op.stage);
      set.micro_batches = std::max(set.micro_batches, op.micro_batch + 1);
    }
    for (const StageId s : stages) {
      if (held.at(s).size() > 1) program.push_back({OpKind::all_reduce, s, 0});
    }
    for (const StageId s : stages) program.push_back({OpKind::update, s, 0});
  }
  return set;
}

}  // namespace pp::plan
