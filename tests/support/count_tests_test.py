"""scripts/support/count_tests.py on entries of every outcome: only an exit code of 77 counts as skipped."""

import pathlib
import subprocess
import sys
import tempfile

ENTRIES = """
add_test(passes true)
add_test(skips sh -c "echo SKIPPED; exit 77")
add_test(prints_and_fails sh -c "echo SKIPPED; exit 1")
add_test(may_not_skip sh -c "exit 77")
add_test(by_pattern sh -c "echo SKIPPED; exit 1")
add_test(cannot_start no-such-program)
set_tests_properties(skips prints_and_fails PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(by_pattern PROPERTIES SKIP_REGULAR_EXPRESSION SKIPPED)
"""

with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "CTestTestfile.cmake").write_text(ENTRIES)
    tests = subprocess.run(["ctest", "--output-junit", "results.xml"], cwd=folder, stdout=subprocess.DEVNULL)
    counter = pathlib.Path(__file__).parents[2] / "scripts/support/count_tests.py"
    command = [sys.executable, counter, f"{folder}/results.xml", str(tests.returncode), "0"]
    counted = subprocess.run(command, capture_output=True, text=True)
# The layering check is the second that passed.
if (counted.stdout, counted.returncode) != ("2 passed, 4 failed, 1 skipped\n", 1):
    sys.exit(f"exit {counted.returncode}: {counted.stdout}{counted.stderr}")
