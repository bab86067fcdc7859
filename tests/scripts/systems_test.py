#!/usr/bin/env python3
"""Every row of the table of 35 statements about pipeline systems has a test: a doctest case or a transcript's named `row N: ...` or `rows N, M: ...`, or its schedules in
the table of promises; what says something of a training or an inference has one that runs."""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
ALL = set(range(1, 36))
# Partitioners, formulas, lists, what is refused, files of plans.
WITHOUT_A_RUN = {6, 9, 10, 12, 13, 20, 29, 35}
# Rows on gradients alone: the table of promises trains these schedules to the bits of accumulation.
FEATURES = TESTS / "librun/features.cpp"
IN_THE_TABLE = {19: ["dapple-pa", "dapple-pb"], 30: ["hybrid"], 31: ["interleaved"], 32: ["looped-bfs", "gpipe-reverse"],
                33: ["zb-h1", "zb-h2", "zb-v"], 34: ["dualpipe-v", "chimera"]}


def built(folder: pathlib.Path) -> set[pathlib.Path]:
    """Tests in a folder that some CMakeLists.txt names."""
    files = ((listing.parent / name).resolve() for listing in TESTS.rglob("CMakeLists.txt")
             for name in re.findall(r"[\w./-]+_test\.cpp", listing.read_text()))
    return {file for file in files if file.is_relative_to(folder)}


def rows(folder: pathlib.Path) -> set[int]:
    return {int(row) for file in [*built(folder), *folder.glob("apps/*.txt")]
            for rows in re.findall(r'(?:TEST_CASE\(\s*"|^## )rows? ([\d, ]+): ', file.read_text(), re.MULTILINE) for row in rows.split(", ")}


trained = set(re.findall(r'schedule\(\{"([\w-]+)"', FEATURES.read_text()))
tabled = {row for row, schedules in IN_THE_TABLE.items() if trained.issuperset(schedules)}
for missing, where in ((ALL - rows(TESTS) - tabled, "in any test"),
                       (ALL - WITHOUT_A_RUN - rows(TESTS / "librun") - tabled, "that runs")):
    if missing:
        sys.exit(f"no case {where} is named \"row N: ...\" for N = {', '.join(map(str, sorted(missing)))}")
