#include <charconv>

#include "libplan/schedule/program.h"
#include "libprofile/core/error.h"

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

}  // namespace pp::plan
