"""demo_summary.py FOLDER: the short summary at the end of scripts/demo, from plan.json, free.json and report.json
there."""

import json
import pathlib
import sys


def shape(plan: dict) -> str:
    layers = "|".join(str(len(stage["layers"])) for stage in plan["stages"])
    replicas = "-".join(str(len(stage["workers"])) for stage in plan["stages"])
    training = plan["training"]
    return (f"{plan['schedule']['name']}, layers per stage {layers}, replicas {replicas}, "
            f"{training['mini_batch']} samples in {training['micro_batches']} "
            f"micro-batch{'es' * (training['micro_batches'] != 1)}")


def comparison(report: dict, name: str, factor: float, unit: str) -> str:
    row = next(c for c in report["comparisons"] if c["name"] == name)
    ratio = f", measured/predicted {row['ratio']:.2f}" if row["ratio"] else ""
    return f"predicted {factor * row['predicted']:.4g}{unit}, measured {factor * row['measured']:.4g}{unit}{ratio}"


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    plan, free, report = (json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "free", "report"))
    lines = [("plan", shape(plan)),
             ("chosen freely", f"{shape(free)}; predicted {1e3 * free['predicted']['step_s']:.4g} ms per step"),
             ("step time", comparison(report, "step_s", 1e3, " ms")),
             ("bubble", comparison(report, "bubble_fraction", 100, " %"))]
    lines += [(f"peak, worker {worker['id']}",
               comparison(report, f"worker_{worker['id']}_peak_bytes", 1 / 2**20, " MiB"))
              for worker in plan["workers"]]
    last = report["epochs"][-1]
    lines.append(("test accuracy", f"{100 * last['test_accuracy']:.2f} % after {len(report['epochs'])} epochs"))
    for name, text in lines:
        print(f"{name + ':':<16} {text}")


main()
