"""transcripts_test.py: what scripts/support/transcripts.py takes for the same, and what it does not."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RUNNER = pathlib.Path(__file__).parents[2] / "scripts/support/transcripts.py"


def run(text: str, *options: str) -> tuple[int, str, str]:
    """Exit code, what it prints and the transcript afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "one.txt"
        path.write_text(text)
        done = subprocess.run([sys.executable, RUNNER, *options, path], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, path.read_text()


class Transcripts(unittest.TestCase):
    def holds(self, text: str) -> bool:
        code, out, _ = run("## a case\n" + text)
        self.assertEqual(out.splitlines()[-1], f"cases: {1 - code} passed, {code} failed, 0 skipped")
        return code == 0

    def test_lines_codes_and_streams_count(self) -> None:
        self.assertTrue(self.holds("$ echo one; echo two >&2; false\none\n! two\n? 1\n"))
        for wrong in ("on", "one\none", "", "! one"):
            self.assertFalse(self.holds(f"$ echo one\n{wrong}\n"), wrong)
        said = "$ echo one >&2"
        for wrong in ("$ false", "$ true\n? 1", "$ false\n? 2", said, said + "\none", said + "\n..."):
            self.assertFalse(self.holds(wrong + "\n"), wrong)

    def test_three_dots_are_any_text_and_alone_any_lines_of_one_stream(self) -> None:
        self.assertTrue(self.holds("$ seq 5; echo six >&2\n1\n...\n5\n! ...\n"))
        self.assertTrue(self.holds("$ seq 2\n...\n1\n...\n2\n...\n"))
        self.assertTrue(self.holds("$ echo a [b] c\na [...] c\n"))
        for wrong in ("1\n...\n4", "...\n1", "1\n2\n...4"):
            self.assertFalse(self.holds(f"$ seq 3\n{wrong}\n"), wrong)

    def test_a_case_has_a_new_folder_and_one_shell_and_begins_as_all_do(self) -> None:
        first = "## first\n$ echo y >> file; name=z\n$ cat file; echo $name\nx\ny\nz\n"
        second = "## second\n$ cat file; echo .$name\nx\n.\n"
        self.assertEqual(run("$ echo x > file\n" + first + second)[0], 0)

    def test_a_case_without_its_program_is_skipped(self) -> None:
        code, out, _ = run("## a case [needs no-such-program]\n$ no-such-program\n")
        self.assertEqual((code, out.splitlines()[-1]), (77, "cases: 0 passed, 0 failed, 1 skipped"))

    def test_recording_writes_what_is_printed_and_leaves_what_holds(self) -> None:
        begin = "## a case\n$ seq 2\n1\n...\n$ echo one; echo two >&2; (exit 3)\n"
        another = "## another\n$ echo \\\n> four\n"
        _, _, after = run(f"{begin}zero\n? 1\n\n{another}", "--record")
        self.assertEqual(after, f"{begin}one\n! two\n? 3\n\n{another}four\n")
        self.assertEqual(run(after)[0], 0)


unittest.main()
