// How often this executable's own code takes a mutex, and how many threads share each: pthread_mutex_lock is
// replaced, and who called it is told by the return address.
#pragma once

#include <cstdint>

namespace pp::test {

/// The calling thread is number `member` (0 to 63) of those that are counted; -1: it no longer is.
void count_locks_as(int member);

/// Of the calling thread, while it is counted.
std::int64_t locks();
/// Nobody has taken any so far; no thread is counted meanwhile.
void forget_locks();
/// Those of all counted threads on mutexes that more than two of them have taken so far.
std::int64_t locks_of_many();

}  // namespace pp::test
