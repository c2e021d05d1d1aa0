"""Runs the project's programs the way a user does."""
import os
import subprocess
import sys

from conftest import ROOT


class Outcome:
  """Status and output of a finished program."""

  def __init__(self, completed):
    self.status = completed.returncode
    self.output = completed.stdout


def run(script, cwd, timeout=600, **flags):
  """Runs `script --flag=value ...` in a folder, on the CPU.

  Args:
    script: file name in the project's folder.
    cwd: where to run it.
    timeout: seconds after which the test fails.
    **flags: without the dashes; True and False as users write them; None
      leaves a flag out.

  Returns:
    Outcome; stdout and stderr together, as in a terminal.
  """
  flags.setdefault("device_type", "cpu")
  command = [sys.executable, str(ROOT / script)]
  command += ["--%s=%s" % item for item in sorted(flags.items())
              if item[1] is not None]
  completed = subprocess.run(
      command, cwd=str(cwd), timeout=timeout, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
  return Outcome(completed)
