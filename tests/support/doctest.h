// For tests that do not see Torch. Include it last: Torch's logging defines a CHECK that aborts the process.
#pragma once

#undef CHECK
#include <doctest/doctest.h>
