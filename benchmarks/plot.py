"""Draws training steps against the limit of their matrix products.

    .venv/tf2/bin/python benchmarks/plot.py STEP.json [OTHER.json ...] \\
        --output step_time.svg

Reads what benchmarks/train_step.py writes with --json. Each program is a bar of
its step time; the line across it is how long the step's matrix products take by
themselves, measured in the same process. The ending of --output tells the
format: svg, png or pdf.
"""
import argparse
import json

import matplotlib
from matplotlib.figure import Figure

# Equal figures give equal files.
matplotlib.rcParams["svg.hashsalt"] = "step"


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("files", nargs="+", metavar="STEP.json")
  parser.add_argument("--output", default="step_time.svg")
  return parser.parse_args()


def read_steps(paths):
  """Returns [(label, figures of a program)], file by file."""
  steps = []
  for path in paths:
    with open(path, encoding="utf-8") as reader:
      report = json.load(reader)
    label = "%s\n%s"
    if report.get("settings", {}).get("precision", "fp32") != "fp32":
      label += ", " + report["settings"]["precision"]
    steps += [(label % (name, figures["version"]), figures)
              for name, figures in report["programs"].items()]
  return steps


def draw(steps):
  """Returns the figure; without pyplot: no display, no state of its own."""
  figure = Figure(figsize=(8, 1.2 + 0.6 * len(steps)))
  axes = figure.subplots()
  places = list(range(len(steps)))
  walls = [figures["wall_s"] for _, figures in steps]
  axes.barh(places, walls, height=0.6, color="tab:blue", label="step time")
  limits = [(place, figures["limit_s"]) for place, (_, figures)
            in zip(places, steps) if "limit_s" in figures]
  if limits:
    axes.vlines([limit for _, limit in limits],
                [place - 0.4 for place, _ in limits],
                [place + 0.4 for place, _ in limits], color="tab:red",
                linewidth=2.5, label="its matrix products alone")
  for place, (_, figures) in zip(places, steps):
    text = " %.3g s" % figures["wall_s"]
    if "limit_s" in figures:
      text += ", %.2f x the limit" % (
          figures["wall_s"] / figures["limit_s"])
    axes.text(max(figures["wall_s"], figures.get("limit_s", 0)), place, text,
              va="center", fontsize=9)
  axes.set_yticks(places)
  axes.set_yticklabels([label for label, _ in steps], fontsize=9)
  axes.invert_yaxis()
  axes.set_xlim(0, 1.4 * max(walls))
  axes.set_xlabel("seconds a training step")
  axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2,
              frameon=False)
  figure.tight_layout()
  return figure


def main():
  arguments = parse_arguments()
  figure = draw(read_steps(arguments.files))
  # The date would make each file another one.
  is_svg = arguments.output.endswith(".svg")
  figure.savefig(arguments.output, dpi=150,
                 **({"metadata": {"Date": None}} if is_svg else {}))
  print("wrote", arguments.output)


if __name__ == "__main__":
  main()
