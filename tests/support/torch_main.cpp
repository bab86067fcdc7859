// c10 errors without their backtrace in failure messages.
#include "tests/support/torch_test.h"

REGISTER_EXCEPTION_TRANSLATOR(const c10::Error& e) { return doctest::String(e.what_without_backtrace()); }

/// What AddressSanitizer's leak check leaves out: memory of messages that a failed run leaves to the library,
/// which may still write it.
extern "C" const char* __lsan_default_suppressions() { return "leak:Bundle::~Bundle\nleak:~RankTransport\n"; }
