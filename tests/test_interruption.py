"""SIGTERM and SIGINT: when they act, and with which status."""
import signal
import subprocess
import sys

import pytest

from conftest import ROOT

PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from multigpu import interruption
number = int(sys.argv[2])
interruption.listen()
interruption.wait_for_steps(sys.argv[3] == "training")
try:
  for count in range(int(sys.argv[4])):
    os.kill(os.getpid(), number)
    print("went on", flush=True)
  interruption.wait_for_steps(False)
  print("asked", interruption.is_asked(), flush=True)
  interruption.raise_if_asked()
finally:
  print("cleaned up", flush=True)
"""


def run(number, phase, count=1):
  return subprocess.run(
      [sys.executable, "-c", PROGRAM, str(ROOT), str(int(number)), phase,
       str(count)],
      capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number, status", [
    (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_act_at_once_but_not_in_a_step(number, status):
  at_once = run(number, "other")
  assert (at_once.returncode, at_once.stdout) == (status, "cleaned up\n")
  waited = run(number, "training")
  assert waited.returncode == status
  assert waited.stdout == "went on\nasked True\ncleaned up\n"
  assert "Stopping after this step" in waited.stderr
  for done in (at_once, waited):
    assert "Traceback" not in done.stderr


def test_only_a_person_can_hurry():
  assert run(signal.SIGTERM, "training", 2).stdout.count("went on") == 2
  hurried = run(signal.SIGINT, "training", 2)
  assert (hurried.returncode, hurried.stdout) == (130, "went on\n")


def test_no_signal_no_end():
  done = run(signal.SIGTERM, "training", 0)
  assert (done.returncode, done.stdout) == (0, "asked False\ncleaned up\n")
