"""What scripts/compare writes: results of rows as tables in Markdown, CSV and a page with pictures. Pure but for its arguments."""

import csv
import io
import typing
from html import escape

from benchmark import markdown
from charts import Line, bars_svg, lines_svg
from comparison import EQUAL, compare_pairs, places
from scatter import Point, scatter_svg

Results = dict[str, dict]  # by row: title, plan, options, and figures, or error

STYLE = """body{font:15px/1.45 sans-serif;max-width:1280px;margin:24px auto;padding:0 16px;color:#222}
table{border-collapse:collapse;font-size:13px;margin:12px 0}td,th{padding:3px 8px;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}td{white-space:nowrap}td.why,table.words td{white-space:normal}th{border-bottom:1px solid #222}td.why{text-align:left;color:#a03010}
table.words td,table.words th{text-align:left}svg{max-width:900px;max-height:640px;display:block}.soft{color:#666}"""


class Column(typing.NamedTuple):
    head: str
    cell: typing.Callable[[dict], str]  # of a row's figures


def known(value: typing.Any, form: typing.Callable[[typing.Any], str]) -> str:
    return "-" if value is None else form(value)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def columns(single: float | None, target: str) -> list[Column]:
    """`single`: samples/s of the single device."""
    return [
        Column("devices", lambda f: str(f["devices"])),
        Column("samples/s", lambda f: f"{f['measured_samples_per_s']:.0f}"),
        Column("predicted", lambda f: known(f["predicted_samples_per_s"], "{:.0f}".format)),
        Column("s/epoch", lambda f: known(f["seconds_per_epoch"], "{:.3g}".format)),
        Column("speed-up", lambda f: known(single and f["measured_samples_per_s"] / single, "{:.2f}".format)),
        Column("peak MiB per device", lambda f: ", ".join(f"{value / 2**20:.2f}" for value in f["peak_bytes"])),
        Column("use, average", lambda f: percent(f["utilisation_average"])),
        Column("use, highest", lambda f: percent(f["utilisation_maximum"])),
        Column("moved MiB/step", lambda f: f"{f['moved_bytes_per_step'] / 2**20:.2f}"),
        Column("test accuracy", lambda f: known(f["test_accuracy"], percent)),
        Column("test loss", lambda f: known(f["test_loss"], "{:.3f}".format)),
        Column(f"epochs to {target}", lambda f: known(f["epochs_to_target"], str)),
        Column("s to target", lambda f: known(f["seconds_to_target"], "{:.1f}".format)),
    ]


def single_speed(results: Results) -> float | None:
    figures = results.get("single", {}).get("figures")
    return figures and figures["measured_samples_per_s"]


def table(results: Results, target: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows; a row that failed says so in its second cell and has no others."""
    shown = columns(single_speed(results), target)
    rows = [[result["title"], *((column.cell(result["figures"]) for column in shown) if "figures" in result else
                                ["failed: " + result["error"]])] for result in results.values()]
    return ["", *(column.head for column in shown)], rows


def filled(header: list[str], rows: list[list[str]]) -> list[list[str]]:
    return [row + [""] * (len(header) - len(row)) for row in rows]


def how_table(results: Results) -> tuple[list[str], list[list[str]]]:
    return ["", "plan", "asked of pp-plan", "more of pp-run"], [
        [result["title"], result.get("plan", "-"), " ".join(result["options"]["plan"]) or "nothing",
         " ".join(result["options"]["run"]) or "nothing"] for result in results.values()]


# --- ranking


def speeds(results: Results) -> tuple[dict[str, float], dict[str, float]]:
    """By title, measured and predicted samples/s of the rows that have both."""
    both = {r["title"]: r["figures"] for r in results.values() if r.get("figures", {}).get("predicted_samples_per_s")}
    return tuple({title: f[f"{kind}_samples_per_s"] for title, f in both.items()} for kind in ("measured", "predicted"))


def ranking_table(results: Results) -> tuple[list[str], list[list[str]]]:
    measured, predicted = speeds(results)
    by_run, by_plan = places(measured), places(predicted)
    return ["", "place", "samples/s", "predicted place", "predicted", "measured / predicted"], [
        [title, str(by_run[title]), f"{measured[title]:.0f}", str(by_plan[title]), f"{predicted[title]:.0f}",
         f"{measured[title] / predicted[title]:.2f}"] for title in sorted(by_run, key=by_run.get)]


def ranking_words(results: Results) -> list[str]:
    measured, predicted = speeds(results)
    pairs = compare_pairs(measured, predicted)
    total = pairs.agreeing + pairs.equal + len(pairs.disagreeing)
    return [f"Of {total} pairs of rows, the plan names the faster one rightly in {pairs.agreeing}; {pairs.equal} are within "
            f"{percent(EQUAL)} of each other as measured or as predicted; {len(pairs.disagreeing)} are the other way round"
            f"{':' if pairs.disagreeing else '.'}",
            *(f"{faster} is faster than {other} ({measured[faster]:.0f} and {measured[other]:.0f} samples/s), predicted "
              f"{predicted[faster]:.0f} and {predicted[other]:.0f}" for faster, other in pairs.disagreeing)]


# --- documents


def as_markdown(title: str, about: str, results: Results, target: str) -> str:
    header, rows = table(results, target)
    claim, *listed = ranking_words(results)
    return "\n".join([f"# {title}\n", f"{about}\n", markdown(header, filled(header, rows)),
                      "## Ranking\n", markdown(*ranking_table(results)), f"{claim}\n", *(f"- {line}" for line in listed), *([""] if listed else []),
                      "## How\n", markdown(*how_table(results))])


def as_csv(results: Results) -> str:
    """A line for each row, figures in their base units; lists are joined by blanks."""
    names = ["synchronous", "devices", "measured_samples_per_s", "predicted_samples_per_s", "seconds_per_epoch", "peak_bytes",
             "utilisation_average", "utilisation_maximum", "moved_bytes_per_step", "test_accuracy", "test_loss", "epochs_to_target",
             "seconds_to_target"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "plan", *names, "speed_up", "error"])
    single = single_speed(results)
    for name, result in results.items():
        f = result.get("figures", {})
        cells = [" ".join(f"{v:.0f}" for v in f[key]) if isinstance(f.get(key), list) else f.get(key) for key in names]
        writer.writerow([name, result.get("plan"), *cells, f["measured_samples_per_s"] / single if f and single else None,
                         result.get("error")])
    return out.getvalue()


def html_table(header: list[str], rows: list[list[str]], kind: str = "") -> str:
    def line(row: list[str]) -> str:
        cells = [f"<td>{escape(cell)}</td>" for cell in row]
        if len(row) < len(header):
            cells[-1] = f'<td class="why" colspan="{len(header) - len(row) + 1}">{escape(row[-1])}</td>'
        return f"<tr>{''.join(cells)}</tr>"

    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    return f'<table class="{kind}"><tr>{head}</tr>{"".join(map(line, rows))}</table>'


def curves(results: Results, x: str, y: str) -> list[Line]:
    """A line for each row, dashed where the training is asynchronous."""
    kept = [(result["title"], result["figures"]) for result in results.values() if "figures" in result]
    return [Line(title, [(point[x], point[y]) for point in figures["curve"] if point[y] is not None], number,
                 not figures["synchronous"]) for number, (title, figures) in enumerate(kept)]


def step_curves(results: Results) -> list[Line]:
    """Of runs without a whole epoch: the loss of each step."""
    kept = [(result["title"], result["figures"]) for result in results.values() if "figures" in result]
    return [Line(title, [(i + 1, loss) for i, loss in enumerate(figures["step_losses"]) if loss is not None], number,
                 not figures["synchronous"]) for number, (title, figures) in enumerate(kept)]


def pictures(results: Results) -> list[tuple[str, str]]:
    """Headings and SVGs."""
    kept = [(result["title"], result["figures"]) for result in results.values() if "figures" in result]
    found = [("Samples per second", bars_svg([(title, [f["measured_samples_per_s"], f["predicted_samples_per_s"]]) for title, f in kept],
                                             ["measured", "predicted"], "samples per second"))]
    measured, predicted = speeds(results)
    if measured:
        found.append(("Predicted and measured; on the diagonal they are equal", scatter_svg(
            {"rows": [Point(predicted[title], measured[title], title) for title in measured]}, "predicted samples/s", "measured samples/s", named=True)))
    if any(f["curve"] for _, f in kept):
        found.append(("Training loss", lines_svg(curves(results, "epoch", "train_loss"), "epoch", "training loss")))
        for quantity, words in (("test_loss", "test loss"), ("test_accuracy", "test accuracy")):
            if any(line.points for line in curves(results, "seconds", quantity)):
                found.append((words.capitalize() + " over time",
                              lines_svg(curves(results, "seconds", quantity), "seconds of training, without evaluations", words)))
    elif any(f["step_losses"] for _, f in kept):
        found.append(("Training loss", lines_svg(step_curves(results), "step", "training loss", from_zero=False)))
    found.append(("Highest peak of a device", bars_svg([(title, [max(f["peak_bytes"]) / 2**20]) for title, f in kept], ["MiB"], "MiB")))
    return found


def as_html(title: str, about: str, results: Results, target: str) -> str:
    claim, *listed = ranking_words(results)
    drawn = "".join(f"<h2>{escape(head)}</h2>{svg}" for head, svg in pictures(results))
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>'
            f'<body><h1>{escape(title)}</h1><p class="soft">{escape(about)}</p>{html_table(*table(results, target))}'
            f"{drawn}<h2>Ranking</h2>{html_table(*ranking_table(results))}<p>{escape(claim)}</p>"
            f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in listed)}</ul><h2>How</h2>{html_table(*how_table(results), 'words')}"
            "</body></html>\n")
