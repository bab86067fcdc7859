"""scripts/support/count_tests.py on entries of every outcome: only an exit code of 77 counts as skipped, and an entry
with several cases as so many."""

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
add_test(many sh -c "seq 3000; echo 'cases: 12 passed, 0 failed, 3 skipped'")
add_test(many_fail sh -c "echo 'cases: 5 passed, 2 failed, 0 skipped'; exit 2")
add_test(many_crash sh -c "echo 'cases: 5 passed, 0 failed, 0 skipped'; exit 139")
set_tests_properties(skips prints_and_fails PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(by_pattern PROPERTIES SKIP_REGULAR_EXPRESSION SKIPPED)
"""

# As scripts/test says it: the end of what a test prints is kept.
OUTPUT = ["--test-output-size-passed", "1024", "--test-output-truncation", "middle"]

with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "CTestTestfile.cmake").write_text(ENTRIES)
    tests = subprocess.run(["ctest", "--output-junit", "results.xml", *OUTPUT], cwd=folder, stdout=subprocess.DEVNULL)
    counter = pathlib.Path(__file__).parents[2] / "scripts/support/count_tests.py"
    command = [sys.executable, counter, f"{folder}/results.xml", str(tests.returncode), "0"]
    counted = subprocess.run(command, capture_output=True, text=True)
# The layering check is the second that passed.
if (counted.stdout, counted.returncode) != ("24 passed, 7 failed, 4 skipped\n", 1):
    sys.exit(f"exit {counted.returncode}: {counted.stdout}{counted.stderr}")
