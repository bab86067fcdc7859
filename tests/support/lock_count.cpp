#include "tests/support/lock_count.h"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>

// Set by the linker.
extern "C" const char __executable_start, etext;  // NOLINT(bugprone-reserved-identifier)

namespace pp::test {
namespace {

struct Mutex {
  std::atomic<const void*> address;
  std::atomic<std::uint64_t> members;  ///< a bit each
  std::atomic<std::int64_t> locks;
};

thread_local int t_member = -1;
thread_local std::int64_t t_locks = 0;
constexpr std::size_t kPlaces = std::size_t{1} << 16;
std::array<Mutex, kPlaces> mutexes;  // open addressing

Mutex& place_of(const void* address) {
  for (std::size_t i = reinterpret_cast<std::uintptr_t>(address) / 8;; ++i) {
    Mutex& mutex = mutexes[i % kPlaces];
    const void* found = nullptr;
    if (mutex.address.compare_exchange_strong(found, address) || found == address) return mutex;
  }
}

void count(const void* address) {
  ++t_locks;
  Mutex& mutex = place_of(address);
  mutex.members |= std::uint64_t{1} << t_member;
  ++mutex.locks;
}

}  // namespace

void count_locks_as(int member) { t_member = member; }

std::int64_t locks() { return t_locks; }

void forget_locks() {
  for (Mutex& mutex : mutexes) {
    mutex.address = nullptr;
    mutex.members = 0;
    mutex.locks = 0;
  }
}

std::int64_t locks_of_many() {
  std::int64_t sum = 0;
  for (const Mutex& mutex : mutexes) {
    if (std::popcount(mutex.members.load()) > 2) sum += mutex.locks;
  }
  return sum;
}

}  // namespace pp::test

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real = nullptr;
  if (real.load() == nullptr) real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  const char* caller = static_cast<const char*>(__builtin_return_address(0));
  if (pp::test::t_member >= 0 && caller >= &__executable_start && caller < &etext) pp::test::count(mutex);
  return real.load()(mutex);
}
