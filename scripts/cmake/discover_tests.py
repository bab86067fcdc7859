"""discover_tests.py EXECUTABLE OUTPUT.cmake [--by-suite] [--imitation VARIABLE=VALUE...] [--serial SUITE]...
[--timeout SECONDS]

Asks a test executable for its cases and writes their CTest entries: one a case, or with --by-suite one a suite; cases
of suites gpu/... are single entries always. Only an entry of one case may skip, by its exit code. --imitation adds the
cases of gpu/... once more, under an imitation GPU, where none may skip. Entries of SERIAL suites run alone.
"""

import argparse
import subprocess
import xml.etree.ElementTree

SKIPPED = 77  # tests/support/main.cpp


def entry(name: str, command: list[str], properties: dict[str, str]) -> str:
    quote = lambda text: f"[==[{text}]==]"
    pairs = " ".join(f"{key} {quote(value)}" for key, value in properties.items())
    return (f"add_test({quote(name)} {' '.join(map(quote, command))})\n"
            f"set_tests_properties({quote(name)} PROPERTIES {pairs})\n")


def entries(options: argparse.Namespace, cases: list[tuple[str, str]]):
    done = set()
    for suite, case in cases:
        gpu = suite.startswith("gpu/")
        properties = {"LABELS": suite, "TIMEOUT": options.timeout}
        if suite in options.serial:
            properties["RUN_SERIAL"] = "TRUE"
        command = [options.executable, f"--test-suite={suite}", "--no-skipped-summary"]
        if options.by_suite and not gpu:
            if suite not in done:
                yield entry(suite, command, properties)
            done.add(suite)
            continue
        command.append("--test-case=" + case.replace(",", "\\,"))
        name = f"{suite}: {case}" if gpu and not case.startswith(suite) else case
        yield entry(name, command, {**properties, "SKIP_RETURN_CODE": str(SKIPPED)})
        if gpu and options.imitation:
            yield entry(f"imitation/{name}", command, {**properties, "ENVIRONMENT": ";".join(options.imitation)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("executable")
    parser.add_argument("output")
    parser.add_argument("--by-suite", action="store_true")
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
