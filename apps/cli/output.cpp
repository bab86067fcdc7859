#include "apps/cli/output.h"

#include <filesystem>
#include <iostream>
#include <set>

namespace pp::cli {
namespace {

namespace fs = std::filesystem;

struct Claims {
  std::set<std::string> inputs, outputs;
};

/// Of the invocation.
Claims& claims() {
  static Claims all;
  return all;
}

[[noreturn]] void refuse(const std::string& path, const std::string& message) {
  throw Error(ErrorKind::usage, path + ": " + message);
}

/// The file behind all names that lead to it; empty for what is no plain file.
std::string plain_file(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return "";
  const fs::path file = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return ignored ? path : file.string();
}

}  // namespace

void claim_input(const std::string& path) {
  const std::string file = plain_file(path);
  if (claims().outputs.contains(file)) refuse(path, "is read and written; write to another file");
  if (!file.empty()) claims().inputs.insert(file);
}

void claim_output(const std::string& path) {
  const bool standard = path == "-";
  const std::string file = standard ? path : plain_file(path);
  if (claims().inputs.contains(file)) refuse(path, "is read and written; write to another file");
  const bool fresh = file.empty() || claims().outputs.insert(file).second;
  if (fresh) return;
  if (standard) throw Error(ErrorKind::usage, "two outputs want stdout; give one of them a file");
  refuse(path, "two outputs have this name; give each its own");
}

void release_claims() { claims() = {}; }

Output::Output(const std::string& path) : wanted_(!path.empty()) {
  if (wanted_) claim_output(path);
  if (wanted_ && path != "-") file_.emplace(path);
}

void Output::write(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
    file_->commit();
  } else if (wanted_) {
    std::cout << bytes;
  }
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string read_input(const std::string& path) {
  if (path != "-") return read_file(path);
  std::string text = read_standard_input();
  if (text.empty())
    throw Error(ErrorKind::data, "standard input is empty; it holds one document, for one `-` of the command");
  return text;
}

}  // namespace pp::cli
