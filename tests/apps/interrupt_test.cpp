// What the tools' signal handlers do: the first signal is a flag, the second one ends the process.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

#include "apps/cli/interrupt.h"

#include "tests/support/doctest.h"

namespace {

/// How a child process ends that calls `body`: its wait status.
template <class Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_SUITE("apps/interrupt") {
  TEST_CASE("the first signal is only noted, the same one again ends the process with 130") {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
      const int once = status_of_child([signal] {
        pp::cli::catch_interrupts();
        if (pp::cli::interrupted()) ::_exit(1);
        ::raise(signal);
        ::_exit(pp::cli::interrupted() ? 0 : 2);
      });
      CHECK(WIFEXITED(once));
      CHECK(WEXITSTATUS(once) == 0);
      const int twice = status_of_child([signal] {
        pp::cli::catch_interrupts();
        ::raise(signal);
        ::usleep(150'000);
        ::raise(signal);
      });
      CHECK(WIFEXITED(twice));
      CHECK(WEXITSTATUS(twice) == 130);
    }
  }

  TEST_CASE("timeout(1) sends its signal twice at once, which is one wish") {
    const int status = status_of_child([] {
      pp::cli::catch_interrupts();
      ::raise(SIGINT);
      ::raise(SIGINT);
      ::_exit(pp::cli::interrupted() ? 0 : 2);
    });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }

  // Ctrl-C reaches all processes of the terminal, and the launcher then sends SIGTERM to those that it started.
  TEST_CASE("SIGINT and the launcher's SIGTERM are one wish; a second later another signal is a second one") {
    for (const int pause_ms : {0, 1100}) {
      const int status = status_of_child([pause_ms] {
        pp::cli::catch_interrupts();
        ::raise(SIGINT);
        ::usleep(static_cast<useconds_t>(pause_ms) * 1000);
        ::raise(SIGTERM);
        ::_exit(pp::cli::interrupted() ? 0 : 2);
      });
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == (pause_ms == 0 ? 0 : 130));
    }
  }

  TEST_CASE("a run that nohup started is not ended by its terminal") {
    const int status = status_of_child([] {
      ::signal(SIGHUP, SIG_IGN);
      pp::cli::catch_interrupts();
      ::raise(SIGHUP);
      ::_exit(pp::cli::interrupted() ? 1 : 0);
    });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
