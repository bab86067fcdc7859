#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace pp::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void redirect(const std::filesystem::path& path, int flags, int descriptor) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
  close(file);
}

/// `descriptor` becomes a pipe that nobody reads.
void break_pipe(int descriptor) {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], descriptor) < 0) _exit(126);
  close(ends[0]);
  close(ends[1]);
}

/// A terminal that a child process writes to.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    usable_ =
        master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0 && access(ptsname(master_), W_OK) == 0;
  }
  ~Terminal() {
    if (master_ >= 0) close(master_);
  }
  bool usable() const { return usable_; }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// In the child.
  void become(int descriptor, int columns) const {
    redirect(ptsname(master_), O_WRONLY | O_NOCTTY, descriptor);
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    ioctl(descriptor, TIOCSWINSZ, &size);
    setenv("TERM", "xterm", 1);
  }
  /// Until the child has ended.
  void copy_to(const std::filesystem::path& file) const {
    std::ofstream out(file, std::ios::binary | std::ios::app);
    char text[4096];
    for (ssize_t count = 0; (count = read(master_, text, sizeof text)) > 0;) out.write(text, count).flush();
  }

 private:
  int master_;
  bool usable_ = false;
};

/// Until the file has the text or the process has ended.
void wait_for_text(const std::filesystem::path& file, const std::string& text, pid_t process) {
  siginfo_t ended{};
  while (contents(file).find(text) == std::string::npos) {
    waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, const Circumstances& circumstances) {
  const TemporaryFolder streams;
  const std::filesystem::path out = streams.path() / "out";
  const std::filesystem::path err = streams.path() / "err";
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  std::optional<Terminal> terminal;
  if (circumstances.columns > 0 && !terminal.emplace().usable()) throw std::runtime_error("no pseudo terminal");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    if (chdir(folder.c_str()) != 0) _exit(126);
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    if (circumstances.broken >= 0) break_pipe(circumstances.broken);
    if (terminal) terminal->become(STDERR_FILENO, circumstances.columns);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  std::optional<std::thread> reader;
  if (terminal) reader.emplace([&] { terminal->copy_to(err); });
  if (circumstances.signal != 0) {
    wait_for_text(err, circumstances.signal_when, child);
    kill(child, circumstances.signal);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  if (reader) reader->join();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, contents(out), contents(err), std::int64_t{usage.ru_maxrss} << 10};
}

bool has_terminals() { return Terminal().usable(); }

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "pp-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace pp::test
