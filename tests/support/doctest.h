// For tests that do not see Torch. Include it last: Torch's logging defines a CHECK that aborts the process.
#pragma once

#undef CHECK
// Assertions are calls: a quarter of the code. What one throws ends its case.
#define DOCTEST_CONFIG_SUPER_FAST_ASSERTS
#include <doctest/doctest.h>
