"""What scripts/sweep writes: results of cases as Markdown, CSV and lines of a picture. No files, no processes."""

import csv
import io
import statistics
import typing

from benchmark import markdown
from charts import Line

COLUMNS = ["schedule", "stages", "micro_batches", "plan", "predicted_s", "measured_s", "error"]


class Case(typing.NamedTuple):
    schedule: str
    stages: int
    micro_batches: int

    def name(self) -> str:
        return f"{self.schedule}-{self.stages}-stages-{self.micro_batches}-micro-batches"


def median_error(results: list[dict]) -> float | None:
    """Of |measured/predicted - 1| over the cases that ran."""
    errors = [abs(result["measured_s"] / result["predicted_s"] - 1) for result in results if "error" not in result]
    return statistics.median(errors) if errors else None


def cells(result: dict) -> list[object]:
    asked = [result["schedule"], result["stages"], result["micro_batches"]]
    if "error" in result:
        return [*asked, "failed: " + result["error"], "", "", ""]
    predicted, measured = result["predicted_s"], result["measured_s"]
    return [*asked, result["plan"], f"{1e3 * predicted:.2f}", f"{1e3 * measured:.2f}", f"{measured / predicted:.2f}"]


def as_markdown(title: str, settings: dict, results: list[dict]) -> str:
    error = median_error(results)
    head = ["schedule", "stages", "M", "plan", "predicted ms", "measured ms", "measured / predicted"]
    about = f"{settings['model']} on {settings['devices']}, mini-batches of {settings['mini_batch']}, {settings['steps']} steps a case."
    claim = "No case ran." if error is None else f"Median of |measured/predicted - 1|: {100 * error:.1f} %."
    return f"# {title}\n\n{about}\n\n{markdown(head, map(cells, results))}\n{claim}\n"


def as_csv(results: list[dict]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    return out.getvalue()


def as_lines(results: list[dict]) -> list[Line]:
    """Of each schedule and number of stages a measured line and a dashed one, as predicted, over the micro-batch counts."""
    groups: dict[str, list[dict]] = {}
    for result in results:
        if "error" not in result:
            stages = f"{result['stages']} stage{'s' * (result['stages'] > 1)}"
            groups.setdefault(f"{result['schedule']}, {stages}", []).append(result)
    return [Line(f"{name}: {kind}", sorted((case["micro_batches"], 1e3 * case[f"{kind}_s"]) for case in cases), number, kind == "predicted")
            for number, (name, cases) in enumerate(groups.items()) for kind in ("measured", "predicted")]
