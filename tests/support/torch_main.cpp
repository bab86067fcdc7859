// c10 errors without their backtrace in failure messages.
#include "tests/support/torch_test.h"

REGISTER_EXCEPTION_TRANSLATOR(const c10::Error& e) { return doctest::String(e.what_without_backtrace()); }
