#include "tests/lab/faults/fault.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

namespace pp::faults {

namespace {

using Counter = std::atomic<std::int64_t>;

std::string_view given(const char* name, std::string_view otherwise) {
  const char* const text = std::getenv(name);
  return text ? text : otherwise;
}

std::int64_t number(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

int open_at_once(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644));
}

Counter& calls() {
  static Counter own{0};
  static Counter* const all = [] {
    const char* const path = std::getenv("PP_FAULT_COUNTER");
    const int file = path ? open_at_once(path, O_RDWR) : -1;
    if (file < 0) return &own;
    // mmap() itself may be what is counted.
    const long page =
        ::syscall(SYS_mmap, nullptr, sizeof(Counter), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::syscall(SYS_close, file);
    return page == -1 ? &own : reinterpret_cast<Counter*>(page);
  }();
  return *all;
}

/// Adds a line to the file, in one piece.
void say(const char* file, std::string_view call, std::string_view path) {
  std::array<char, 4200> line{};
  const int length = std::snprintf(line.data(), line.size(), "%.*s %.*s\n", static_cast<int>(call.size()),
                                   call.data(), static_cast<int>(path.size()), path.data());
  const int said = open_at_once(file, O_WRONLY | O_CREAT | O_APPEND);
  if (said < 0) return;
  ::syscall(SYS_write, said, line.data(), length);
  ::syscall(SYS_close, said);
}

void stop_for_a_second() {
  static std::array<char, 64> script;
  std::snprintf(script.data(), script.size(), "sleep 1; kill -CONT %d", static_cast<int>(::getpid()));
  static std::array<char, 8> shell{"/bin/sh"}, option{"-c"};
  std::array<char*, 4> words{shell.data(), option.data(), script.data(), nullptr};
  std::array<char*, 1> nothing{nullptr};
  pid_t helper = 0;
  if (::posix_spawn(&helper, shell.data(), nullptr, nullptr, words.data(), nothing.data()) == 0)
    ::kill(::getpid(), SIGSTOP);
}

Effect happen(std::string_view how) {
  constexpr std::array kErrors{std::pair{"EIO", EIO}, std::pair{"ENOSPC", ENOSPC}, std::pair{"EACCES", EACCES},
                               std::pair{"EINTR", EINTR}, std::pair{"ENOMEM", ENOMEM}};
  for (const auto& [name, error] : kErrors) {
    if (how != name) continue;
    errno = error;
    return Effect::failed;
  }
  if (how == "short") return Effect::shortened;
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "stop") ::kill(::getpid(), SIGSTOP);
  if (how == "pause") stop_for_a_second();
  while (how == "hang" || how == "kill") ::pause();
  constexpr timespec kLate{.tv_sec = 0, .tv_nsec = 200'000'000};
  if (how == "late") ::nanosleep(&kLate, nullptr);
  return Effect::none;
}

}  // namespace

bool is_wanted(std::string_view call) {
  static const std::string_view wanted = given("PP_FAULT_CALL", "");
  return call == wanted || wanted == "all";
}

Effect next_call(std::string_view call, std::string_view path) {
  static const std::string_view file = given("PP_FAULT_FILE", "");
  static const std::string_view how = given("PP_FAULT_HOW", "EIO");
  static const std::int64_t first = number("PP_FAULT_AFTER", 0);
  static const std::int64_t times = number("PP_FAULT_TIMES", std::numeric_limits<std::int64_t>::max() - first);
  if (!is_wanted(call) || path.find(file) == std::string_view::npos) return Effect::none;
  const std::int64_t k = calls().fetch_add(1);
  if (k < first || k >= first + times) return Effect::none;
  const int error = errno;
  static const char* const said = std::getenv("PP_FAULT_SAID");
  if (said) say(said, call, path);
  errno = error;
  return happen(how);
}

}  // namespace pp::faults
