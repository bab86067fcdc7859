// Where documents come from and go to. `-o FILE` is opened before the long work and appears whole; `-` is
// stdout.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/text.h"

namespace pp::cli {

/// The files of the invocation: no output may be another output or an input. Both throw pp::Error (usage) that
/// names the file. load() and Output call them; devices and pipes may stand twice.
void claim_input(const std::string& path);
void claim_output(const std::string& path);
/// A new invocation begins: nothing is claimed.
void release_claims();

class Output {
 public:
  /// Empty path: nothing is written. Throws pp::Error (usage) when the file cannot be written, or is claimed.
  explicit Output(const std::string& path);
  bool wanted() const { return wanted_; }
  bool is_stdout() const { return wanted_ && !file_; }
  /// Once, with everything.
  void write(std::string_view bytes);

 private:
  bool wanted_;
  std::optional<AtomicFile> file_;
};

/// How messages call it: `plan.json`, and `standard input` for `-`.
std::string input_name(const std::string& path);
/// The file, or for `-` standard input, which holds one document. Throws pp::Error (data).
std::string read_input(const std::string& path);

/// Reads a document without its byte order mark; errors carry the file's name: `plan.json: /stages/3: ...`,
/// also where memory runs out.
template <class Parse>
auto load(const std::string& path, Parse&& parse) {
  try {
    claim_input(path);
    const std::string text = read_input(path);
    return with_context(input_name(path), [&] { return parse(without_byte_order_mark(text)); });
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::run, input_name(path) + ": out of memory; end other programs");
  }
}

}  // namespace pp::cli
