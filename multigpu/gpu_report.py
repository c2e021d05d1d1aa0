"""The report of `verify_gpus.py`: machine, table, JSON and picture."""
import json
import os
import platform
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional

from multigpu import files
from multigpu import verdicts
from multigpu.verdicts import Result

JSON_NAME, PICTURE_NAME = "report.json", "report.png"
# Of the format of report.json.
VERSION = 1

# Environment variables that change what TensorFlow and NCCL do.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "XLA_FLAGS")
_PREFIXES = ("NCCL_", "TF_")
_GPU_FIELDS = ("index", "name", "driver_version", "memory.total", "pci.bus_id")


class Report(NamedTuple):
  """All that goes into the files."""
  settings: Dict[str, Any]
  environment: Dict[str, Any]
  checks: List[Result]
  speed: List[Result]

  @property
  def passed(self) -> bool:
    """Whether all that is available here works."""
    return verdicts.all_passed(self.checks + self.speed)

  def to_json(self) -> str:
    """The text of report.json."""
    return json.dumps({
        "version": VERSION,
        "passed": self.passed,
        "settings": self.settings,
        "environment": self.environment,
        "checks": [result._asdict() for result in self.checks],
        "speed": [result._asdict() for result in self.speed],
    }, indent=2) + "\n"


def describe_machine() -> Dict[str, Any]:
  """Processor, system, and what the NVIDIA driver's tool tells."""
  return {
      "platform": platform.platform(),
      "cpu": _cpu_name(),
      "num_cpus": os.cpu_count(),
      "gpus": _gpus(),
      # Shows which GPUs reach each other directly, and which over the CPU.
      "topology": _ask_driver("topo", "-m"),
      "variables": {
          name: value for name, value in sorted(os.environ.items())
          if name in _VARIABLES or name.startswith(_PREFIXES)}}


def _gpus() -> List[Dict[str, str]]:
  text = _ask_driver("--query-gpu=" + ",".join(_GPU_FIELDS),
                     "--format=csv,noheader")
  return [dict(zip(_GPU_FIELDS, [field.strip() for field in line.split(",")]))
          for line in (text or "").splitlines() if line.strip()]


def _ask_driver(*arguments: str) -> Optional[str]:
  """What nvidia-smi prints; None without a driver."""
  try:
    return subprocess.run(
        ("nvidia-smi",) + arguments, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, timeout=60, check=True
    ).stdout.decode("utf-8", "replace")
  except (OSError, subprocess.SubprocessError):
    return None


def _cpu_name() -> Optional[str]:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as reader:
      for line in reader:
        if line.startswith("model name"):
          return line.partition(":")[2].strip()
  except OSError:
    pass
  return None


def format_table(speed: List[Result]) -> str:
  """Speed, efficiency and memory of each number of replicas."""
  lines = ["replicas  examples/s  efficiency  s a step  peak memory"]
  for result in speed:
    figures = result.figures
    if not figures:
      lines.append("{}: {}".format(result.name, result.status))
      continue
    efficiency, memory = (
        figures.get("efficiency"), figures["peak_memory_bytes"])
    lines.append("{:>8}  {:>10.1f}  {:>10}  {:>8.3f}  {:>11}".format(
        figures["num_replicas"], figures["examples_per_second"],
        "-" if efficiency is None else "{:.0%}".format(efficiency),
        figures["median_step_seconds"],
        "not told" if memory is None else "{:.2f} GiB".format(
            memory / 2.0 ** 30)))
  return "\n".join(lines)


def write(report: Report, output_dir: str) -> List[str]:
  """Writes report.json, and report.png where matplotlib is installed.

  Returns:
    What was written, or why not, a line each.

  Raises:
    UserError: the folder is not writable.
  """
  path = os.path.join(output_dir, JSON_NAME)
  files.write_text_atomically(path, report.to_json())
  picture = os.path.join(output_dir, PICTURE_NAME)
  try:
    _draw(report, picture)
  except ImportError as error:
    # One of an earlier run would show other figures.
    if os.path.exists(picture):
      os.remove(picture)
    return [path, "no {}: matplotlib is not installed ({}); the JSON has all "
            "figures".format(PICTURE_NAME, error)]
  return [path, picture]


def _draw(report: Report, path: str) -> None:
  """Speed against its ideal, and the checks as coloured lines."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure
  # Without pyplot: no display, no state of its own.
  figure = Figure(figsize=(11, 4.5))
  left, right = figure.subplots(1, 2)
  rows = [result.figures for result in report.speed if result.figures]
  counts = [row["num_replicas"] for row in rows]
  speeds = [row["examples_per_second"] for row in rows]
  places = list(range(len(rows)))
  left.bar(places, speeds, color="tab:blue", label="measured")
  if counts and counts[0] == 1:
    left.plot(places, [speeds[0] * count for count in counts], "k--o",
              label="N times the speed of 1")
  left.set_xticks(places)
  left.set_xticklabels([str(count) for count in counts])
  left.set_xlabel("replicas")
  left.set_ylabel("training examples/s")
  if rows:
    left.legend()
  environment = report.environment
  names = sorted({gpu["name"] for gpu in environment.get("gpus", [])})
  left.set_title("{}, TensorFlow {}".format(
      ", ".join(names) or environment.get("devices", ""),
      environment.get("tensorflow", "?")), fontsize=9)
  results = report.checks + report.speed
  colors = {verdicts.PASSED: "tab:green", verdicts.UNAVAILABLE: "gray"}
  right.axis("off")
  for i, result in enumerate(results):
    right.text(0.0, 1.0 - (i + 0.5) / len(results), "{}: {}".format(
        result.name, result.status), fontsize=10,
               color=colors.get(result.status, "tab:red"))
  figure.tight_layout()
  temporary = "{}.tmp-{}".format(path, os.getpid())
  FigureCanvasAgg(figure).print_png(temporary)
  os.replace(temporary, path)
