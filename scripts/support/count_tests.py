"""count_tests.py RESULTS.xml CTEST_STATUS LAYERING_STATUS: prints `N passed, N failed, N skipped` from CTest's JUnit
file.

An entry counts the cases of its line `cases: 12 passed, 0 failed, 1 skipped` (tests/support/main.cpp), or as one without
it; the layering check counts as one more. Exits 1 when a test failed, when ctest itself did (a status that no counted
failure explains is one failure), or when no test of ctest's ran.
"""

import re
import sys
import xml.etree.ElementTree


def outcome(case: xml.etree.ElementTree.Element) -> str:
    """A test that could not be started (no executable, a failed fixture) is `notrun` like a skipped one, and has
    failed; so has one that is called skipped for anything but its exit code."""
    if case.get("status") == "run":
        return "passed"
    if case.get("status") == "disabled":
        return "skipped"
    skipped = case.find("skipped")
    return "skipped" if skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE") else "failed"


def counts(case: xml.etree.ElementTree.Element) -> dict[str, int]:
    """An entry that failed without a failed case (it crashed, say) counts one failure beside the cases that it names."""
    line = re.findall(r"^cases: (\d+) passed, (\d+) failed, (\d+) skipped$", case.findtext("system-out", ""), re.MULTILINE)
    said = outcome(case)
    if not line:
        return {said: 1}
    count = dict(zip(("passed", "failed", "skipped"), map(int, line[-1])))
    count["failed"] = max(count["failed"], said == "failed")
    return count


def main() -> None:
    results, ctest_status, layering_status = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        for outcome_of_case, number in counts(case).items():
            count[outcome_of_case] += number
    nothing_ran = count["passed"] + count["failed"] == 0
    if ctest_status != 0 and count["failed"] == 0:
        count["failed"] += 1
    count["failed" if layering_status else "passed"] += 1
    if nothing_ran:
        print("test: no test ran", file=sys.stderr, flush=True)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    sys.exit(1 if count["failed"] or nothing_ran else 0)


main()
