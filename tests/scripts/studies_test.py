"""python3 tests/scripts/studies_test.py: the pure parts of scripts/compare and scripts/sweep (configs, figures, ranking, tables,
pictures, what is kept), and both scripts with tools that only pretend to train. Figures are derived by hand beside each case.
"""

import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/support"))
sys.dont_write_bytecode = True

import charts  # noqa: E402
import comparison  # noqa: E402
import comparison_tables  # noqa: E402
import documents  # noqa: E402
import scatter  # noqa: E402
import study  # noqa: E402
import sweep_tables  # noqa: E402

MIB = 2**20


def report(**changes: object) -> dict:
    """Two stages, the first with two replicas, on three devices; two epochs."""
    whole = {
        "plan": {
            "schedule": {"name": "1f1b", "weight_policy": "flush"},
            "stages": [{"layers": ["a", "b"], "workers": [0, 1]}, {"layers": ["c"], "workers": [2]}],
            "workers": [{"id": 0, "device": 0}, {"id": 1, "device": 1}, {"id": 2, "device": 3}],
            "predicted": {"samples_per_s": 110.0, "stages": [{"gradients_bytes": 1000}, {"gradients_bytes": 500}]},
        },
        "samples_per_s": 100.0,
        "workers": [{"id": 0, "bubble_fraction": 0.2, "peak_bytes": 3 * MIB, "sent_bytes_per_step": 40},
                    {"id": 1, "bubble_fraction": 0.4, "peak_bytes": 2 * MIB, "sent_bytes_per_step": 40},
                    {"id": 2, "bubble_fraction": 0.3, "peak_bytes": MIB, "sent_bytes_per_step": 70}],
        "epochs": [{"elapsed_s": 2.0, "evaluation_s": 0.5, "train_loss": 2.0, "test_loss": 1.5, "test_accuracy": 0.9},
                   {"elapsed_s": 4.25, "evaluation_s": 0.5, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": 0.97}],
        "steps": 4,
        "step_losses": [2.5, 1.5, 1.0],
    }
    return {**whole, **changes}


def results() -> dict[str, dict]:
    def row(title: str, measured: float, predicted: float) -> dict:
        made = comparison.figures(report(samples_per_s=measured), comparison.Target("test_accuracy", 0.96))
        return {"title": title, "options": {"plan": ["--schedule", title], "run": []}, "plan": f"{title} 2|1",
                "figures": {**made, "predicted_samples_per_s": predicted}}

    return {"single": row("one device", 100, 100), "1f1b": row("1F1B", 160, 150), "naive": row("naive", 90, 120),
            "harmony": {"title": "Harmony", "options": {"plan": [], "run": []}, "error": "pp-plan: no | plan <here> (exit 3)"}}


class Figures(unittest.TestCase):
    def test_time_of_training_leaves_out_evaluations(self) -> None:
        # elapsed_s is taken before the epoch's own evaluation: 2.0, then 4.25 less the first one's 0.5.
        self.assertEqual(comparison.training_seconds(report()["epochs"]), [2.0, 3.75])
        self.assertEqual(comparison.training_seconds([]), [])

    def test_figures_of_a_run(self) -> None:
        made = comparison.figures(report(), comparison.Target("test_accuracy", 0.96))
        self.assertEqual(made["devices"], 3)
        self.assertTrue(made["synchronous"])
        self.assertEqual(made["seconds_per_epoch"], 1.875)  # of 2.0 and 1.75
        self.assertEqual(made["peak_bytes"], [3 * MIB, 2 * MIB, MIB])
        self.assertAlmostEqual(made["utilisation_average"], 0.7)  # 0.8, 0.6, 0.7
        self.assertAlmostEqual(made["utilisation_maximum"], 0.8)
        self.assertEqual(made["moved_bytes_per_step"], 150 + 2000)  # messages; 2 (2-1) 1000 of the first stage
        self.assertEqual((made["epochs_to_target"], made["seconds_to_target"]), (2, 3.75))
        self.assertEqual([point["seconds"] for point in made["curve"]], [2.0, 3.75])

    def test_workers_of_one_device_count_together(self) -> None:
        both = report()
        both["plan"] = {**both["plan"], "workers": [{"id": 0, "device": 0}, {"id": 1, "device": 0}, {"id": 2, "device": 1}]}
        self.assertEqual(comparison.by_device(both, lambda worker: worker["peak_bytes"]), [5 * MIB, MIB])

    def test_a_server_takes_all_gradients_and_hands_out_all_weights(self) -> None:
        served = report()
        served["plan"] = {**served["plan"], "schedule": {"name": "parameter-server", "weight_policy": "server"}}
        # 2 * 2 * 1000 of the first stage, 2 * 1 * 500 of the second
        self.assertEqual(comparison.moved_bytes(served), 150 + 4000 + 1000)

    def test_swaps_are_those_of_all_steps(self) -> None:
        swapped = report()
        swapped["workers"][0] = {**swapped["workers"][0], "swaps_in": {"bytes": 800}, "swaps_out": {"bytes": 400}}
        self.assertEqual(comparison.moved_bytes(swapped), 150 + 2000 + 300)  # 1200 in 4 steps

    def test_targets(self) -> None:
        self.assertEqual(comparison.figures(report(), comparison.Target("test_loss", 1.5))["epochs_to_target"], 1)
        self.assertIsNone(comparison.figures(report(), comparison.Target("test_accuracy", 0.98))["seconds_to_target"])
        self.assertIsNone(comparison.figures(report(), None)["epochs_to_target"])

    def test_a_run_without_a_whole_epoch(self) -> None:
        made = comparison.figures(report(epochs=[]), comparison.Target("test_loss", 1.0))
        self.assertEqual((made["seconds_per_epoch"], made["test_accuracy"], made["epochs_to_target"]), (None, None, None))


class Ranking(unittest.TestCase):
    def test_within_five_percent_is_equal(self) -> None:
        self.assertEqual([comparison.order(105, 100), comparison.order(100, 105), comparison.order(105.1, 100),
                          comparison.order(100, 105.1)], [0, 0, 1, -1])

    def test_pairs(self) -> None:
        measured = {"a": 100.0, "b": 104.0, "c": 120.0, "d": 60.0}
        predicted = {"a": 100.0, "b": 200.0, "c": 90.0, "d": 92.0}
        # a-b equal as measured, c-d as predicted; a-c: c, but a is predicted; b-c: c, but b; a-d and b-d: agree
        self.assertEqual(comparison.compare_pairs(measured, predicted), comparison.Pairs(2, 2, [("c", "a"), ("c", "b")]))

    def test_places(self) -> None:
        self.assertEqual(comparison.places({"a": 1.0, "b": 3.0, "c": 2.0}), {"b": 1, "c": 2, "a": 3})

    def test_words(self) -> None:
        # one-1f1b agree (160/100, 150/100); one-naive: one is faster by 11 %, naive predicted by 20 %; 1f1b-naive agree
        claim, *listed = comparison_tables.ranking_words(results())
        self.assertIn("Of 3 pairs of rows, the plan names the faster one rightly in 2; 0 are within 5.0 %", claim)
        self.assertEqual(listed, ["one device is faster than naive (100 and 90 samples/s), predicted 100 and 120"])


class Rows(unittest.TestCase):
    def test_rows_use_all_devices(self) -> None:
        rows = {row.name: row for row in comparison.standard_rows({"manual_cuts": [2, 5], "memory_limit": "3MiB", "swap_bandwidth": "6GB/s"}, 3)}
        self.assertEqual(rows["1f1b"].plan, ["--schedule", "1f1b", "--stages", "3", "--replicas", "1-1-1"])
        self.assertEqual(rows["all-reduce"].plan[-2:], ["--replicas", "3"])
        self.assertEqual(rows["gpipe-manual"].plan[-2:], ["--cuts", "2,5"])
        self.assertEqual(rows["harmony"].plan[-2:], ["--memory-limit", "3MiB"])
        self.assertEqual({row.lacks for row in rows.values()}, {""})

    def test_rows_say_what_the_config_lacks(self) -> None:
        rows = {row.name: row.lacks for row in comparison.standard_rows({"manual_cuts": None, "memory_limit": None, "swap_bandwidth": None}, 2)}
        self.assertEqual({name: lacks for name, lacks in rows.items() if lacks},
                         {"gpipe-manual": "manual_cuts", "harmony": "memory_limit", "ours-capped": "memory_limit"})

    def test_options_of_the_config_come_last(self) -> None:
        rows = comparison.with_overrides([comparison.Row("2bw", "", ["--schedule", "2bw"])], {"2bw": {"run": ["--lr", "0.01"]}})
        self.assertEqual((rows[0].plan, rows[0].run), (["--schedule", "2bw"], ["--lr", "0.01"]))

    def test_the_later_of_two_equal_options_stays(self) -> None:
        self.assertEqual(comparison.merged(["--lr", "1", "--nesterov", "--momentum", "-0.5"], ["--lr=2", "--stages", "2", "--stages", "3"]),
                         ["--nesterov", "--momentum", "-0.5", "--lr=2", "--stages", "3"])
        self.assertEqual(comparison.merged([], []), [])


class Tables(unittest.TestCase):
    def test_table(self) -> None:
        header, rows = comparison_tables.table(results(), "96 %")
        cells = dict(zip(header, rows[1]))
        self.assertEqual((cells[""], cells["speed-up"], cells["s/epoch"], cells["peak MiB per device"], cells["epochs to 96 %"]),
                         ("1F1B", "1.60", "1.88", "3.00, 2.00, 1.00", "2"))
        self.assertEqual(rows[3], ["Harmony", "failed: pp-plan: no | plan <here> (exit 3)"])

    def test_without_a_single_device_there_is_no_speed_up(self) -> None:
        header, rows = comparison_tables.table({"1f1b": results()["1f1b"]}, "96 %")
        self.assertEqual(dict(zip(header, rows[0]))["speed-up"], "-")

    def test_csv_has_a_line_for_each_row(self) -> None:
        lines = list(csv.DictReader(io.StringIO(comparison_tables.as_csv(results()))))
        self.assertEqual([line["row"] for line in lines], ["single", "1f1b", "naive", "harmony"])
        self.assertEqual((lines[1]["speed_up"], lines[1]["peak_bytes"]), ("1.6", f"{3 * MIB} {2 * MIB} {MIB}"))
        self.assertEqual((lines[3]["error"], lines[3]["speed_up"]), ("pp-plan: no | plan <here> (exit 3)", ""))

    def test_page_is_well_formed_and_escapes(self) -> None:
        page = comparison_tables.as_html("A & B", "about", results(), "96 %")
        tree = xml.etree.ElementTree.fromstring(page.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', ""))
        self.assertEqual(len(tree.findall("body/{http://www.w3.org/2000/svg}svg")), 6)
        self.assertIn("no | plan &lt;here&gt;", page)

    def test_markdown_rows_have_as_many_cells(self) -> None:
        text = comparison_tables.as_markdown("T", "about", results(), "96 %")
        lines = [line.replace("\\|", "") for line in text.split("## Ranking")[0].splitlines() if line.startswith("|")]
        self.assertEqual({line.count("|") for line in lines}, {15})

    def test_nothing_ran(self) -> None:
        failed = {"harmony": results()["harmony"]}
        self.assertIn("Of 0 pairs", comparison_tables.as_markdown("T", "about", failed, "target"))
        self.assertIn("</html>", comparison_tables.as_html("T", "about", failed, "target"))


class Pictures(unittest.TestCase):
    def test_steps_are_round(self) -> None:
        for low, high, expected in [(0, 60, [0, 10, 20, 30, 40, 50, 60]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (95, 100, [95, 96, 97, 98, 99, 100])]:
            self.assertEqual([round(step, 9) for step in charts.steps(low, high)], expected)

    def test_places_of_points(self) -> None:
        # x: 1, 2, 4 on powers of two are equally far apart; y: 10 of 0..20 is half the height
        svg = charts.lines_svg([charts.Line("a", [(1, 20.0), (2, 10.0), (4, 20.0)])], "x", "y", powers_of_two=True)
        right, floor = charts.WIDTH - charts.RIGHT, charts.HEIGHT - charts.BOTTOM
        middle = f'cx="{(charts.LEFT + right) / 2:.1f}" cy="{(charts.TOP + floor) / 2:.1f}"'
        self.assertIn(middle, svg)
        xml.etree.ElementTree.fromstring(svg)

    def test_a_single_point_and_none(self) -> None:
        for lines in ([], [charts.Line("a", [(1, 0.0)])]):
            xml.etree.ElementTree.fromstring(charts.lines_svg(lines, "x", "y"))

    def test_titles_stand_above_what_is_drawn(self) -> None:
        svg = charts.lines_svg([charts.Line("a", [(1, 1.0), (2, 2.0)])], "x", "y", title="Steps <here>")
        self.assertIn(">Steps &lt;here&gt;</text>", svg)
        self.assertIn(f'V{charts.HEIGHT - charts.BOTTOM}', svg)
        self.assertIn(f' {charts.TOP + 24}V', svg)  # the plot begins below it

    def test_names_of_points_keep_their_distance(self) -> None:
        self.assertEqual(scatter.spread([10, 11, 50], 14, 0, 100), [10, 24, 50])
        self.assertEqual(scatter.spread([98, 99], 14, 0, 100), [86, 100])
        self.assertEqual(scatter.spread([1, 2, 3, 4], 14, 0, 8), [1, 3, 5, 7])  # no room: closer
        points = {"rows": [scatter.Point(1, 1, "one <row>"), scatter.Point(2, 2, "another")]}
        named = scatter.scatter_svg(points, "x", "y", named=True)
        xml.etree.ElementTree.fromstring(named)
        self.assertIn(">one &lt;row&gt;</text>", named)
        self.assertNotIn(">another</text>", scatter.scatter_svg(points, "x", "y"))

    def test_bars_leave_out_what_is_not_known(self) -> None:
        svg = charts.bars_svg([("a", [4.0, None]), ("b", [2.0, 1.0])], ["measured", "predicted"], "x")
        bars = [e for e in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect") if e.get("x")]
        widths = [float(bar.get("width")) for bar in bars]
        self.assertEqual([round(width / widths[0], 2) for width in widths], [1, 0.5, 0.25])


class Sweeps(unittest.TestCase):
    CASES = [{"schedule": "gpipe", "stages": 2, "micro_batches": 4, "plan": "p", "predicted_s": 0.010, "measured_s": 0.011},
             {"schedule": "gpipe", "stages": 2, "micro_batches": 2, "plan": "p", "predicted_s": 0.020, "measured_s": 0.016},
             {"schedule": "naive", "stages": 1, "micro_batches": 2, "error": "no"}]

    def test_error_is_the_median_distance(self) -> None:
        self.assertAlmostEqual(sweep_tables.median_error(self.CASES), 0.15)  # 0.1 and 0.2
        self.assertIsNone(sweep_tables.median_error(self.CASES[2:]))

    def test_lines(self) -> None:
        lines = sweep_tables.as_lines(self.CASES)
        self.assertEqual([(line.name, line.dashed, [x for x, _ in line.points]) for line in lines],
                         [("gpipe, 2 stages: measured", False, [2, 4]), ("gpipe, 2 stages: predicted", True, [2, 4])])

    def test_csv(self) -> None:
        lines = list(csv.DictReader(io.StringIO(sweep_tables.as_csv(self.CASES))))
        self.assertEqual((lines[0]["measured_s"], lines[2]["error"]), ("0.011", "no"))


class Configs(unittest.TestCase):
    def refusal(self, changes: dict) -> str:
        whole = {"model": "mlp", "data": ["synthetic"], "mini_batch": 16, "micro_batch_sizes": [2, 4], **changes}
        with self.assertRaises(ValueError) as caught:
            study.complete({key: value for key, value in whole.items() if value is not None}, study.COMMON)
        return str(caught.exception)

    def test_refusals_name_key_value_and_remedy(self) -> None:
        self.assertEqual(self.refusal({"mini_batches": 3}), "mini_batches: no such key; did you mean mini_batch?")
        self.assertEqual(self.refusal({"mini_batch": None}), "mini_batch: is missing; give a whole number above 0")
        self.assertEqual(self.refusal({"mini_batch": True}), "mini_batch: must be a whole number above 0, is true")
        self.assertEqual(self.refusal({"run": "--lr 1"}), 'run: must be a list of texts of one line that are not empty, is "--lr 1"')
        self.assertEqual(self.refusal({"micro_batch_sizes": [4, 0]}), "micro_batch_sizes: must be a list of whole numbers above 0, is [4, 0]")

    def test_what_no_command_line_or_file_name_holds_is_refused(self) -> None:
        for key, value in (("model", "a\0b"), ("model", "\ud800"), ("run", ["a\nb"]), ("devices", "a/b"), ("devices", "c" * 100)):
            with self.subTest(key=key, value=value):
                self.assertTrue(self.refusal({key: value}).startswith(f"{key}: must be "))

    def test_every_config_is_read(self) -> None:
        for path in sorted((ROOT / "configs").glob("compare/*.json")) + sorted((ROOT / "configs").glob("sweep/*.json")):
            with self.subTest(path.name):
                document = json.loads(path.read_text())
                study.complete({key: value for key, value in document.items() if key in study.COMMON}, study.COMMON)

    def test_reason_is_what_a_tool_says_last(self) -> None:
        self.assertEqual(study.reason("x: warning: w\npp-run: error: worker 1:\n  no memory\n"), "worker 1: no memory")
        self.assertEqual(study.reason("Killed\n"), "Killed")
        self.assertEqual(study.reason(""), "it said nothing")


class Documents(unittest.TestCase):
    def refusal(self, value: object, shape: object) -> str:
        with self.assertRaises(documents.Failed) as caught:
            documents.check(value, shape)
        return str(caught.exception)

    def test_places_of_what_is_wrong(self) -> None:
        shape = {"a": [{"b": documents.POSITIVE}], "c": documents.Optional(documents.TEXT)}
        documents.check({"a": [{"b": 1, "more": 2}], "c": None}, shape)
        self.assertEqual(self.refusal([], shape), "/: must be an object")
        self.assertEqual(self.refusal({}, shape), "/: has no a")
        self.assertEqual(self.refusal({"a": [{"b": 1}, {"b": 0}]}, shape), "/a/1/b: must be a number above 0")
        self.assertEqual(self.refusal({"a": [{"b": True}]}, shape), "/a/0/b: must be a number above 0")
        self.assertEqual(self.refusal({"a": [{"b": float("inf")}]}, shape), "/a/0/b: must be a number above 0")
        self.assertEqual(self.refusal({"a": [], "c": 1}, shape), "/c: must be a text")
        self.assertEqual(self.refusal({"a": []}, {"a": documents.Filled(documents.TEXT)}), "/a: must be a list that is not empty")

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.json")
            for content, what in ((None, "No such file or directory"), ("{", "Expecting property name"), ("[" * 100000, "recursion"),
                                  ("\xff", "can't decode"), ('{"schedule": 1}', "/schedule: must be an object")):
                if content is not None:
                    path.write_text(content, encoding="latin-1")
                with self.assertRaises(documents.Failed) as caught:
                    documents.read_document(path, documents.PLAN)
                self.assertIn(f"{path}: ", str(caught.exception))
                self.assertIn(what, str(caught.exception))
            path.write_text("\ufeff[1]", encoding="utf-8")
            self.assertEqual(documents.read_document(path, documents.LIST), [1])


class KeptResults(unittest.TestCase):
    def test_only_the_same_key_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kept = study.Kept(pathlib.Path(folder, "rows"))
            self.assertIsNone(kept.get("a", "1"))
            kept.put("a", "1", {"x": 2})
            self.assertEqual(kept.get("a", "1"), {"x": 2})
            self.assertIsNone(kept.get("a", "2"))
            pathlib.Path(folder, "rows/a.json").write_text("{broken")
            self.assertIsNone(kept.get("a", "1"))


# Tools that write down how they were called. pp-plan refuses harmony-pp; pp-run fails while a file `broken` is there, and ends as
# after Ctrl-C while a file `interrupted` is, if it is asked for --lr 2.
TOOL = """#!{python}
import json, pathlib, sys
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(name, *words, file=calls)
def argument(option):
    return words[words.index(option) + 1]
if "--help" in words:
    sys.exit(0)
if "harmony-pp" in words or (name == "pp-run" and pathlib.Path("broken").exists()):
    print(name + ": error: not today", file=sys.stderr)
    sys.exit(3)
if pathlib.Path("interrupted").exists() and name == "pp-run" and argument("--lr") == "2":
    sys.exit(130)
report = json.loads(pathlib.Path("report-template.json").read_text())
report["plan"]["training"] = {{"mini_batch": 16, "micro_batches": 2}}
if name == "pp-plan":
    document = {{**report["plan"], "alternatives": []}}
elif name == "pp-run":
    document = {{**report, "step_s": 0.02}}
    document["plan"]["predicted"]["step_s"] = 0.01
else:
    document = {{"devices": [0, 1, 3]}}
pathlib.Path(argument("-o")).write_text(json.dumps(document))
"""


class Scripts(unittest.TestCase):
    def setUp(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.folder = pathlib.Path(self.place.name)
        (self.folder / "bin").mkdir()
        for name in ("pp-profile", "pp-plan", "pp-run"):
            path = self.folder / "bin" / name
            path.write_text(TOOL.format(python=sys.executable))
            path.chmod(0o755)
        (self.folder / "report-template.json").write_text(json.dumps(report()))
        self.write("compare.json", {"epochs": 2, "memory_limit": "1MiB", "swap_bandwidth": "1GB/s", "target": {"test_accuracy": 0.96}})
        self.write("sweep.json", {"steps": 4, "schedules": ["gpipe", "harmony-pp"], "stages": [2], "micro_batches": [1, 2]})

    def write(self, name: str, more: dict) -> None:
        (self.folder / name).write_text(json.dumps(
            {"model": "mlp", "data": ["synthetic"], "mini_batch": 16, "micro_batch_sizes": [2, 4], **more}))

    def call(self, script: str, *words: str, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([sys.executable, ROOT / "scripts" / script, *words], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "PP_BIN": str(self.folder / "bin")}, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def calls(self, name: str) -> int:
        return sum(line.startswith(name + " ") for line in (self.folder / "calls.txt").read_text().splitlines())

    def test_comparison_goes_on_where_it_stopped(self) -> None:
        done = self.call("compare", "compare.json", "--rows", "single,1f1b,harmony,gpipe-manual")
        self.assertIn("| Harmony under the cap | failed: pp-plan: not today (exit 3) |", done.stdout)
        self.assertIn("| GPipe, cut by hand | failed: the config has no manual_cuts |", done.stdout)
        self.assertEqual((self.calls("pp-profile"), self.calls("pp-plan"), self.calls("pp-run")), (2, 3, 2))
        again = self.call("compare", "compare.json", "--rows", "single,1f1b,harmony,gpipe-manual")
        self.assertEqual(again.stdout, done.stdout)
        # Nothing is profiled or trained again; the row that failed is planned again.
        self.assertEqual((self.calls("pp-profile"), self.calls("pp-plan"), self.calls("pp-run")), (2, 4, 2))

    def test_odd_configurations_and_documents_end_in_a_line(self) -> None:
        def said(script: str, code: int, more: dict, *words: str) -> str:
            base = {"compare": {"epochs": 2}, "sweep": {"steps": 4, "schedules": ["gpipe"], "stages": [2], "micro_batches": [1]}}[script]
            self.write("odd.json", {**base, **more})
            done = self.call(script, "odd.json", "--again", *words, code=code)
            self.assertNotIn("Traceback", done.stderr)
            return done.stderr + done.stdout

        self.assertIn("profile-cpu-2x1.json: No such file", said("sweep", 1, {"profile": ["--help"]}))
        self.assertIn("plan.json: No such file or directory", said("compare", 1, {"plan": ["--help"]}, "--rows", "single"))
        self.assertIn("report.json: No such file or directory", said("sweep", 1, {"run": ["--help"]}))
        self.assertIn("schedules: must be ", said("sweep", 2, {"schedules": ["a/b"]}))
        self.assertIn("target: must be ", said("compare", 2, {"target": {"test_loss": float("inf")}}))
        self.assertIn("File name too long", said("sweep", 2, {}, "--out", "o" * 300))
        self.assertIn("Not a directory", said("sweep", 2, {}, "--out", "sweep.json/x"))
        self.assertIn("sweep: error: odd.json/machine: ", said("sweep", 2, {}, "--out", "odd.json"))
        # A report without a step, a plan that promises no time.
        (self.folder / "report-template.json").write_text(json.dumps(report(steps=0)))
        self.assertIn("/steps: must be a number above 0", said("compare", 1, {}, "--rows", "single"))
        (self.folder / "report-template.json").write_text(json.dumps(report(workers=[])))
        self.assertIn("/workers: must be a list that is not empty", said("compare", 1, {}, "--rows", "single"))
        # What is kept of a profile has gone: it is measured again.
        (self.folder / "report-template.json").write_text(json.dumps(report()))
        said("sweep", 0, {})
        (self.folder / "out/sweep/odd/machine/cluster.json").unlink()
        self.call("sweep", "odd.json")
        (self.folder / "bin/pp-profile").chmod(0o600)
        self.assertIn("pp-profile: Permission denied", said("sweep", 1, {}))

    def test_a_change_repeats_the_rows_that_it_concerns(self) -> None:
        self.call("compare", "compare.json", "--rows", "single,1f1b")
        self.write("compare.json", {"epochs": 2, "memory_limit": "1MiB", "swap_bandwidth": "1GB/s", "target": {"test_accuracy": 0.96},
                                    "rows": {"1f1b": {"run": ["--lr", "0.1"]}}})
        self.call("compare", "compare.json", "--rows", "single,1f1b")
        self.assertEqual(self.calls("pp-run"), 3)
        self.call("compare", "compare.json", "--rows", "single,1f1b", "--steps", "3")
        self.assertEqual(self.calls("pp-run"), 5)
        self.call("compare", "compare.json", "--rows", "single,1f1b", "--again")
        self.assertEqual((self.calls("pp-run"), self.calls("pp-profile")), (7, 4))

    def test_options_reach_the_tools_once(self) -> None:
        self.write("compare.json", {"epochs": 2, "plan": ["--tied", "copies"], "run": ["--lr", "1"],
                                    "rows": {"1f1b": {"plan": ["--tied", "stage"], "run": ["--lr", "2"]}}})
        self.call("compare", "compare.json", "--rows", "1f1b")
        plan, run = (next(line for line in (self.folder / "calls.txt").read_text().splitlines() if line.startswith(name + " "))
                     for name in ("pp-plan", "pp-run"))
        self.assertIn(" --stages 3 --replicas 1-1-1 --tied stage ", plan)
        self.assertNotIn("copies", plan)
        self.assertIn(" --epochs 2 --lr 2 ", run)

    def test_files_of_a_comparison(self) -> None:
        done = self.call("compare", "compare.json", "--rows", "single,ours", "--out", "there")
        self.assertEqual((self.folder / "there/compare.md").read_text(), done.stdout)
        self.assertEqual(len((self.folder / "there/compare.csv").read_text().splitlines()), 3)
        self.assertTrue((self.folder / "there/compare.html").read_text().startswith("<!doctype html>"))
        self.assertTrue((self.folder / "there/rows/single/report.json").exists())

    def test_rows_before_an_interruption_are_kept(self) -> None:
        self.write("compare.json", {"epochs": 2, "run": ["--lr", "1"], "rows": {"1f1b": {"run": ["--lr", "2"]}}})
        (self.folder / "interrupted").touch()
        done = self.call("compare", "compare.json", "--rows", "single,1f1b", code=130)
        self.assertTrue(done.stderr.endswith("compare: interrupted; the same command goes on with what is left\n"), done.stderr)
        (self.folder / "interrupted").unlink()
        self.call("compare", "compare.json", "--rows", "single,1f1b")
        self.assertEqual(self.calls("pp-run"), 3)  # single, 1f1b interrupted, 1f1b

    def test_no_row_ran(self) -> None:
        (self.folder / "broken").touch()
        done = self.call("compare", "compare.json", "--rows", "single", code=1)
        self.assertIn("| single device | failed: pp-run: not today (exit 3) |", done.stdout)

    def test_refusals(self) -> None:
        done = self.call("compare", "compare.json", "--rows", "1f1c", code=2)
        self.assertEqual(done.stderr, "compare: error: --rows: 1f1c: no such row; did you mean 1f1b?\n")
        self.write("compare.json", {"epochs": 0})
        done = self.call("compare", "compare.json", code=2)
        self.assertEqual(done.stderr, "compare: error: compare.json: epochs: must be a whole number above 0, is 0\n")
        self.write("compare.json", {"epochs": 1, "rows": {"naiv": {"run": []}}})
        done = self.call("compare", "compare.json", code=2)
        self.assertEqual(done.stderr, "compare: error: compare.json: rows: naiv: no such row; did you mean naive?\n")
        done = self.call("sweep", "none.json", code=2)
        self.assertEqual(done.stderr, "sweep: error: none.json: No such file or directory\n")

    def test_sweep_goes_on_where_it_stopped(self) -> None:
        done = self.call("sweep", "sweep.json")
        # predicted 10 ms, measured 20: the ratio is 2, its distance from 1 100 %
        self.assertIn("| gpipe | 2 | 1 | 1f1b 2\\|1, replicas 2-1, M 2 | 10.00 | 20.00 | 2.00 |", done.stdout)
        self.assertIn("| harmony-pp | 2 | 2 | failed: pp-plan: not today (exit 3) |", done.stdout)
        self.assertIn("Median of |measured/predicted - 1|: 100.0 %.", done.stdout)
        self.assertEqual(self.calls("pp-run"), 2)
        self.assertEqual(self.call("sweep", "sweep.json").stdout, done.stdout)
        self.assertEqual((self.calls("pp-run"), self.calls("pp-plan")), (2, 6))
        # A further micro-batch count trains that one alone.
        self.write("sweep.json", {"steps": 4, "schedules": ["gpipe"], "stages": [2], "micro_batches": [1, 2, 4]})
        self.call("sweep", "sweep.json")
        self.assertEqual(self.calls("pp-run"), 3)
        for name in ("sweep.md", "sweep.csv", "sweep.json", "sweep.svg"):
            self.assertTrue((self.folder / "out/sweep/sweep" / name).exists())


if __name__ == "__main__":
    unittest.main()
