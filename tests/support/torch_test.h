// For tests that see Torch; its place among the includes does not matter.
#pragma once

#include <c10/util/Logging.h>  // defines its CHECK now, so that no Torch header after this one can

#include "tests/support/doctest.h"
