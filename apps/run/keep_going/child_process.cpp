#include "apps/run/keep_going/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>

#include "apps/cli/shell.h"
#include "libprofile/core/error.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kChildLook(20);
constexpr std::chrono::seconds kDeath(10);  // of a killed process, which a disk or a network may keep for ever

/// In the child: becomes the program, or writes errno to `failure`.
[[noreturn]] void become(const std::vector<char*>& words, pid_t parent, int out, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGUSR1);  // launchers pass it on; ranks end with a checkpoint
  if (getppid() != parent) _exit(1);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  for (const int handled : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(handled, SIG_DFL);
  execvp(words.front(), words.data());
  const int why = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &why, sizeof why);
  _exit(1);
}

ChildEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

/// mpirun and srun end as a shell does: 128 + the signal that killed a rank.
ChildEnd as_of_rank(const ChildEnd& end) {
  constexpr int kShell = 128, kLastSignal = 64;
  const bool interrupted = end.code == static_cast<int>(cli::ExitCode::interrupted);
  if (!interrupted && end.code > kShell && end.code <= kShell + kLastSignal)
    return {.signal = end.code - kShell};
  return end;
}

}  // namespace

std::string own_path() {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return path.empty() ? "pp-run" : path.string();
}

void expect_children() { std::signal(SIGCHLD, SIG_DFL); }

std::string to_text(const ChildEnd& end) {
  if (end.signal == 0) return "exit code " + std::to_string(end.code);
  return "signal " + std::to_string(end.signal) + " (" + strsignal(end.signal) + ")";
}

int code_of(const ChildEnd& end) {
  return end.signal == 0 ? end.code : static_cast<int>(cli::ExitCode::failed);
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, Stdout output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> failure{}, out{-1, -1};
  const bool piped = pipe2(failure.data(), O_CLOEXEC) == 0 &&
                     (output == Stdout::inherited || pipe2(out.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  std::cout.flush();
  const pid_t parent = getpid();
  pid_ = piped ? fork() : -1;
  if (pid_ < 0)
    throw Error(ErrorKind::run,
                command.front() + " cannot be started: " + std::strerror(errno) + "; close other programs");
  if (pid_ == 0) become(words, parent, out[1], failure[1]);
  setpgid(pid_, pid_);
  close(failure[1]);
  if (out[1] >= 0) close(out[1]);
  out_ = out[0];
  int why = 0;
  const bool failed = read(failure[0], &why, sizeof why) == sizeof why;
  close(failure[0]);
  if (!failed) return;
  waitpid(pid_, nullptr, 0);
  if (out_ >= 0) close(out_);
  throw Error(ErrorKind::usage, command.front() + ": " + std::strerror(why));
}

ChildProcess::~ChildProcess() {
  try {
    if (!ended_) end(Seconds());
  } catch (const Error&) {  // it has been killed
  }
  if (out_ >= 0) close(out_);
}

void ChildProcess::take_output() {
  std::array<char, 4096> piece{};
  while (out_ >= 0) {
    const ssize_t bytes = read(out_, piece.data(), piece.size());
    if (bytes <= 0) return;
    output_.append(piece.data(), static_cast<std::size_t>(bytes));
  }
}

std::optional<ChildEnd> ChildProcess::look() {
  if (ended_) return ended_;
  take_output();
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  if (ended < 0)
    throw Error(ErrorKind::run, "process " + std::to_string(pid_) + ": how it ends cannot be known: " +
                                    std::strerror(errno) + "; go on from the last checkpoint with --resume");
  take_output();
  ended_ = as_of_rank(end_of(status));
  return ended_;
}

void ChildProcess::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

ChildEnd ChildProcess::end(Seconds grace) {
  signal(SIGTERM);
  const auto await = [&](Clock::duration most) {
    const Clock::time_point last = Clock::now() + most;
    while (!look() && Clock::now() < last) std::this_thread::sleep_for(kChildLook);
  };
  await(std::chrono::duration_cast<Clock::duration>(grace));
  if (!ended_) kill(-pid_, SIGKILL);
  await(kDeath);
  if (!ended_) ended_ = ChildEnd{.signal = SIGKILL};
  return *ended_;
}

}  // namespace pp::run_tool
