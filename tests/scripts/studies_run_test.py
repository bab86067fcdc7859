"""studies_run_test.py BIN: scripts/compare and scripts/sweep with the tools in BIN, on a small model: synchronous rows train alike,
the tables say what the reports say, every schedule of a sweep runs.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = {"model": "mlp:inputs=16,width=24,layers=4,classes=4", "data": ["synthetic", "--synthetic-samples", "64", "--test-share", "0.25"],
          "mini_batch": 16, "micro_batch_sizes": [4, 8, 16], "profile": ["--quick", "--budget", "50ms"], "run": ["--lr", "0.1"]}


class Studies(unittest.TestCase):
    binaries = ""

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def call(self, script: str, config: dict, *words: str) -> pathlib.Path:
        (self.folder / "config.json").write_text(json.dumps({**SHARED, **config}))
        done = subprocess.run([sys.executable, ROOT / "scripts" / script, "config.json", *words], cwd=self.folder, capture_output=True,
                              text=True, env={**os.environ, "PP_BIN": self.binaries}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "out" / script / "config"

    def test_rows_train_alike_and_say_what_the_reports_say(self) -> None:
        config = {"epochs": 3, "target": {"test_loss": 100}, "manual_cuts": [2], "memory_limit": "1MiB"}
        out = self.call("compare", config, "--rows", "single,all-reduce,parameter-server,gpipe-time,gpipe-manual,1f1b,zb-h1,ours,free")
        with open(out / "compare.csv") as file:
            rows = {line["row"]: line for line in csv.DictReader(file)}
        reports = {name: json.loads((out / "rows" / name / "report.json").read_text()) for name in rows}
        for name, row in rows.items():
            with self.subTest(name):
                self.assertEqual(row["error"], "")
                report = reports[name]
                self.assertAlmostEqual(float(row["measured_samples_per_s"]) * report["step_s"], 16, places=6)
                self.assertEqual(sum(map(int, row["peak_bytes"].split())), sum(w["peak_bytes"] for w in report["workers"]))
                self.assertEqual(row["epochs_to_target"], "1")
                for loss, alone in zip(report["step_losses"], reports["single"]["step_losses"], strict=True):
                    self.assertAlmostEqual(loss, alone, places=4)
        self.assertEqual(rows["ours"]["devices"], "2")
        self.assertEqual({float(row["speed_up"]) for row in (rows["single"],)}, {1.0})

    def test_sweep_runs_every_case(self) -> None:
        out = self.call("sweep", {"steps": 6, "schedules": ["gpipe", "1f1b"], "stages": [2], "micro_batches": [1, 2]})
        cases = json.loads((out / "sweep.json").read_text())["cases"]
        self.assertEqual([(case["schedule"], case["micro_batches"]) for case in cases],
                         [("gpipe", 1), ("gpipe", 2), ("1f1b", 1), ("1f1b", 2)])
        for case in cases:
            self.assertGreater(case["measured_s"], 0)
            report = json.loads((out / "cases" / f"{case['schedule']}-2-stages-{case['micro_batches']}-micro-batches/report.json").read_text())
            self.assertEqual(case["predicted_s"], report["plan"]["predicted"]["step_s"])


if __name__ == "__main__":
    Studies.binaries = sys.argv.pop(1)
    unittest.main()
