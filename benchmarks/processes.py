"""Processes that are measured in turn: what the benchmarks have in common."""
import json
import os
import pathlib
import statistics
import subprocess
import sys


def run(command):
  """Runs a process without GPUs; returns the JSON that it prints last."""
  done = subprocess.run(command, capture_output=True,
                        env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
  if done.returncode:
    sys.exit("%s\nfailed:\n%s" % (
        " ".join(command), done.stderr.decode("utf-8", "replace")[-2000:]))
  return json.loads(done.stdout.decode("utf-8").splitlines()[-1])


def run_aloud(command):
  """Runs a process without GPUs; what it prints can be seen."""
  if subprocess.call(command, env=dict(os.environ, CUDA_VISIBLE_DEVICES="")):
    sys.exit("%s\nfailed" % " ".join(command))


def run_in_turn(commands, num_runs):
  """Takes turns, so that what else the machine does slows all of them.

  Args:
    commands: {program: command}.
    num_runs: processes of each.

  Returns:
    {program: [what each process printed]}.
  """
  outcomes = {name: [] for name in commands}
  for _ in range(num_runs):
    for name, command in commands.items():
      outcomes[name].append(run(command))
  return outcomes


def summarise(outcomes, *others):
  """Medians over all processes of one program.

  Args:
    outcomes: dicts with "figures", [[wall, CPU] seconds of each step].
    *others: keys of other numbers, as far as the program tells them.
  """
  columns = zip(*(step for outcome in outcomes for step in outcome["figures"]))
  wall, cpu = (statistics.median(column) for column in columns)
  result = {"wall_s": wall, "cpu_s": cpu}
  for name in others:
    if name in outcomes[0]:
      result[name] = statistics.median(outcome[name] for outcome in outcomes)
  return result


def write_json(path, report):
  """Writes the figures, if a path is given."""
  if path:
    pathlib.Path(path).write_text(json.dumps(report, indent=2) + "\n",
                                  encoding="utf-8")
