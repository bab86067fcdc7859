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
  TEST_CASE("the first signal is only noted, the second one ends the process with 130") {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
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
        ::raise(SIGINT);
      });
      CHECK(WIFEXITED(twice));
      CHECK(WEXITSTATUS(twice) == 130);
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
