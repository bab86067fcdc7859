#include "apps/cli/shell.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>

#include "apps/cli/arguments.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/self_description.h"
#include "apps/cli/terminal_text.h"
#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp::cli {
namespace {

constexpr auto kCommon =
    options(option<&Shell::json>("--json", "machine-readable result on stdout", {.group = "Common"}),
            option<&Shell::quiet>("-q,--quiet", "errors only on stderr"),
            option<&Shell::color>("--color", "of what is printed; NO_COLOR is honoured", {.value = "MODE"}));

std::string footer_of(std::span<const std::string_view> examples) {
  std::string footer = "Examples:";
  for (std::string_view example : examples) footer.append("\n  ").append(example);
  return footer;
}

/// `--help` of the tool shows what its default command takes: it is what most calls mean.
std::string default_options_of(const Tool& tool, const CLI::App& app) {
  const CLI::App* command = app.get_subcommand(tool.default_command);
  const HelpLayout layout(static_cast<std::size_t>(terminal_width()));
  return "Without a command, `" + tool.name + " " + tool.default_command + "`:\n" +
         layout.make_positionals(command) + layout.make_groups(command, CLI::AppFormatMode::Normal);
}

int report(const Tool& tool, ExitCode code, std::string_view message) {
  say(tool.name, "error: " + std::string(message));
  return static_cast<int>(code);
}

/// One stream with an EscapingBuffer under it, for as long as the object lives.
class Escaping {
 public:
  Escaping(std::ostream& stream, std::function<bool()> colors)
      : stream_(stream), target_(stream.rdbuf()), buffer_(*target_, std::move(colors)) {
    stream.rdbuf(&buffer_);
  }
  ~Escaping() {
    stream_.flush();
    stream_.rdbuf(target_);
  }
  Escaping(const Escaping&) = delete;
  Escaping& operator=(const Escaping&) = delete;
  int error() const { return buffer_.error(); }

 private:
  std::ostream& stream_;
  std::streambuf* target_;
  EscapingBuffer buffer_;
};

/// A process may begin without them; the next file that it opens would take the number, and with it what is
/// meant for stderr. Reading stdin and writing stdout fail as before.
void open_standard_streams() {
  constexpr std::array kModes{O_WRONLY, O_RDONLY, O_WRONLY};  // by descriptor; open() takes the lowest free one
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", kModes.at(static_cast<std::size_t>(descriptor)));
  }
}

/// A reader that has gone and a file that may not grow are errors of a write, not the end of the process.
void ignore_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

/// What the terminate handler says: the tool, and the first word after it.
struct {
  std::string_view tool, command;
  std::terminate_handler before = nullptr;
} last_words;

/// Memory may run out where nothing can be caught: in destructors, of which those of JSON take some, and in
/// what libraries do while they are loaded. That is said without any more of it.
[[noreturn]] void end_without_memory() {
  try {
    if (!std::current_exception()) last_words.before();
    throw;
  } catch (const std::bad_alloc&) {
    for (const std::string_view part :
         {last_words.tool, std::string_view(": error: "), last_words.command,
          std::string_view(
              ": out of memory; end other programs, or use smaller micro-batches or a smaller model\n")})
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part.data(), part.size());
    _exit(static_cast<int>(ExitCode::failed));
  } catch (...) {
    last_words.before();
  }
  std::abort();
}

std::string version_text(const Tool& tool) {
  std::string text = tool.name + " " + PP_VERSION + "\ndocuments:";
  for (const std::string_view name : schema_names())
    text.append(" ").append(name).append(" " + std::to_string(newest_version(name)));
  if (!tool.parts) return text;
  for (const auto& [name, version] : tool.parts())
    text += "\n" + name + ": " + (version.empty() ? "not in this build" : version);
  return text;
}

Json version_json(const Tool& tool) {
  Json json{{"tool", tool.name}, {"version", PP_VERSION}};
  for (const std::string_view name : schema_names()) json["documents"][name] = newest_version(name);
  if (!tool.parts) return json;
  for (const auto& [name, version] : tool.parts())
    json["parts"][name] = version.empty() ? Json() : Json(version);
  return json;
}

/// `--version` and `--json`, in any order.
bool wants_version_json(std::span<const std::string> arguments) {
  return arguments.size() == 2 && std::ranges::count(arguments, "--version") == 1 &&
         std::ranges::count(arguments, "--json") == 1;
}

int parse_and_run(const Tool& tool, CLI::App& app, Shell& shell, std::vector<std::string> arguments) {
  std::string command;
  try {
    arguments = complete_arguments(app, tool.default_command, tool.options_of_plan, std::move(arguments));
    command = arguments.front();
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
    return static_cast<int>(shell.exit_code);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return report(tool, ExitCode::usage,
                  std::string(e.what()) + "; see " + tool.name + ' ' + command + " --help");
  } catch (const Error& e) {
    return report(tool, exit_code_of(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    return report(
        tool, ExitCode::failed,
        command + ": out of memory; end other programs, or use smaller micro-batches or a smaller model");
  } catch (const std::exception& e) {
    const std::string_view text = e.what();  // the first line: LibTorch puts a backtrace behind it
    return report(tool, ExitCode::failed, "internal: " + std::string(text.substr(0, text.find('\n'))));
  }
}

int invoke(const Tool& tool, int argc, char** argv) {
  open_standard_streams();
  release_claims();
  CLI::App app(tool.summary, tool.name);
  app.set_version_flag("--version", [&tool] { return version_text(tool); });
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();

  Shell shell;
  shell.tool = tool.name;
  for (int i = 0; i < argc; ++i) shell.command_line.append(i > 0 ? " " : "").append(argv[i]);
  app.formatter(std::make_shared<HelpLayout>(static_cast<std::size_t>(terminal_width())));
  tool.add_commands(Command(app), shell);
  add_self_description(Command(app), tool, shell);
  app.footer(default_options_of(tool, app) + "\n" + footer_of(tool.examples) + "\n\n`" + tool.name +
             " COMMAND --help` lists a command's options; `-` as an input file is standard input.");
  ignore_write_signals();
  const Escaping out(std::cout, [&] { return use_color(shell); });
  const Escaping err(std::cerr, [] { return false; });

  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    std::cerr << app.help();
    return static_cast<int>(ExitCode::usage);
  }
  int code = 0;
  if (wants_version_json(arguments)) {
    std::cout << dump_json(version_json(tool));
  } else {
    code = parse_and_run(tool, app, shell, std::move(arguments));
  }
  std::cout.flush();
  // `| head` has read what it wanted.
  const bool lost = !std::cout && out.error() != EPIPE;
  if (code != 0 || !lost) return code;
  return report(tool, ExitCode::failed,
                out.error() != 0 ? "standard output cannot be written" : "standard output: out of memory");
}

}  // namespace

ExitCode exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::data:
    case ErrorKind::device: return ExitCode::usage;
    case ErrorKind::run:
    case ErrorKind::internal: break;
  }
  return ExitCode::failed;
}

void add_common_options(const Command& command, Shell& shell, std::span<const std::string_view> examples) {
  add_options(command, kCommon, shell);
  command.add_flag("-v,--verbose", shell.verbosity, "also say what was decided and why").group("Common");
  command.app().footer(footer_of(examples));
  command.app().parse_complete_callback([&shell] { configure_log(shell); });
}

int run_tool(const Tool& tool, int argc, char** argv) {
  last_words.tool = tool.name;
  last_words.command = argc > 1 ? argv[1] : "";
  if (last_words.before == nullptr) last_words.before = std::set_terminate(end_without_memory);
  try {
    return invoke(tool, argc, argv);
  } catch (const std::bad_alloc&) {
    return report(tool, ExitCode::failed, "options: out of memory; end other programs");
  }
}

void say(const std::string& tool, std::string_view text) {
  constexpr std::size_t kLongest = 4000;
  std::cerr << tool + ": " + shortened(escaped(text, Keep::continued), kLongest) + '\n';
}

bool use_color(const Shell& shell) {
  if (shell.color != ColorMode::automatic) return shell.color == ColorMode::always;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return std::getenv("NO_COLOR") == nullptr && !dumb && isatty(STDOUT_FILENO) == 1;
}

int terminal_width() {
  constexpr int kPlainWidth = 100;
  constexpr int kMostWidth = 200;  // rows longer than that are hard to follow
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::min<int>(size.ws_col, kMostWidth) : kPlainWidth;
}

}  // namespace pp::cli
