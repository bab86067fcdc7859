"""discover_tests.py EXECUTABLE OUTPUT.cmake [--tools SUITE FILE...]... [--imitation VARIABLE=VALUE...] [--serial SUITE]...
[--timeout SECONDS]

Asks a test executable for its cases and writes their CTest entries: one a suite, or of suites with --tools, which they run,
one a case.
--imitation adds the cases of suites gpu/..., one an entry, under an imitation GPU, where none may skip. Entries of serial
suites run alone.
"""

import argparse
import subprocess
import xml.etree.ElementTree

SKIPPED = "77"  # tests/support/main.cpp


def entry(name: str, command: list[str], properties: dict[str, str]) -> str:
    quote = lambda text: f"[==[{text}]==]"
    pairs = " ".join(f"{key} {quote(value)}" for key, value in properties.items())
    return (f"add_test({quote(name)} {' '.join(map(quote, command))})\n"
            f"set_tests_properties({quote(name)} PROPERTIES {pairs})\n")


def entries(options: argparse.Namespace, cases: list[tuple[str, str]]):
    done = set()
    tools = {suite: files for suite, *files in options.tools}
    for suite, case in cases:
        properties = {"LABELS": suite, "TIMEOUT": options.timeout}
        if suite in options.serial:
            properties["RUN_SERIAL"] = "TRUE"
        if suite in tools:
            properties["REQUIRED_FILES"] = ";".join(tools[suite])
        of_suite = [options.executable, f"--test-suite={suite}", "--no-skipped-summary"]
        of_case = [*of_suite, "--test-case=" + case.replace(",", "\\,")]
        skipping = {**properties, "SKIP_RETURN_CODE": SKIPPED}
        if suite in tools:
            yield entry(case, of_case, skipping)
        elif suite not in done:
            yield entry(suite, of_suite, skipping)
        done.add(suite)
        if options.imitation and suite.startswith("gpu/"):
            yield entry(f"imitation/{suite}: {case}", of_case, {**properties, "ENVIRONMENT": ";".join(options.imitation)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("executable")
    parser.add_argument("output")
    parser.add_argument("--tools", nargs="+", action="append", default=[])
    parser.add_argument("--imitation", nargs="+", default=[])
    parser.add_argument("--serial", action="append", default=[])
    parser.add_argument("--timeout", default="300")
    options = parser.parse_args()
    listing = subprocess.run([options.executable, "--list-test-cases", "--reporters=xml"], check=True,
                             capture_output=True)
    root = xml.etree.ElementTree.fromstring(listing.stdout)
    cases = [(case.get("testsuite", ""), case.get("name")) for case in root.iter("TestCase")]
    with open(options.output, "w", encoding="utf-8") as file:
        file.writelines(entries(options, cases))


main()
