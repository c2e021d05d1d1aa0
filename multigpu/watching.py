"""Runs a program and ends it when it stops making progress.

A collective operation on GPUs that cannot reach each other does not fail: it
waits forever, inside the driver, where no Python code can interrupt it. So the
program that may hang is a process of its own, which tells on its stdout what it
is doing, and this one kills it when it is silent for too long. No TensorFlow.
"""
import json
import os
import queue
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional

# Begins a line of stdout that is an event; other lines are ignored.
EVENT = "@event "
# Events have one of these keys. What the program is doing now:
PHASE = "phase"
# (with PHASE) it is one training step, and must end within the step's time;
# starting Python or building the graph of a large model may take longer:
IS_STEP = "is_step"
OTHER_FACTOR = 5
# What it found, in the end:
RESULT, UNAVAILABLE, ERROR = "result", "unavailable", "error"


class Outcome(NamedTuple):
  """What became of a program."""
  status: Optional[int]  # exit status; minus a signal; None = killed by us
  # Its last event of each key but PHASE: {key: value}.
  found: Dict[str, Any]
  # The phase in which it was silent for too long.
  hung_in: Optional[str]
  seconds: float


def report(**event: Any) -> None:
  """Tells an event to the process that watches this one."""
  print(EVENT + json.dumps(event), flush=True)


def watch(command: List[str], log_path: str, step_timeout: float) -> Outcome:
  """Runs a program to its end, or kills it with all that it has started.

  Args:
    command: the program and its arguments.
    log_path: file for its stderr.
    step_timeout: seconds that one step may take; other phases may take
      OTHER_FACTOR times that.
  """
  begin = time.monotonic()
  with open(log_path, "wb") as log:
    # A session of its own: a signal reaches all processes of it, and Ctrl-C in
    # the terminal none of them (they are killed below).
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        start_new_session=True)
  found: Dict[str, Any] = {}
  hung_in = None
  try:
    hung_in = _follow(process, found, step_timeout)
  finally:
    status = None if hung_in else process.poll()
    _kill(process)
  return Outcome(status, found, hung_in, time.monotonic() - begin)


def _follow(process: Any, found: Dict[str, Any],
            step_timeout: float) -> Optional[str]:
  """Collects events; returns the phase that took too long, or None."""
  lines: Any = queue.Queue()
  threading.Thread(target=_read, args=(process.stdout, lines),
                   daemon=True).start()
  phase = "the start of the program"
  deadline = time.monotonic() + OTHER_FACTOR * step_timeout
  while True:
    try:
      line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
      return phase
    if line is None:
      break
    event = _parse(line)
    if PHASE in event:
      phase = event[PHASE]
      deadline = time.monotonic() + step_timeout * (
          1 if event.get(IS_STEP) else OTHER_FACTOR)
    else:
      found.update(event)
  try:
    process.wait(timeout=step_timeout)
  except subprocess.TimeoutExpired:
    return "the end of the program"
  return None


def _read(stream: Any, lines: Any) -> None:
  with stream:
    for line in stream:
      lines.put(line)
  lines.put(None)


def _parse(line: bytes) -> Dict[str, Any]:
  text = line.decode("utf-8", "replace")
  if not text.startswith(EVENT):
    return {}
  try:
    return json.loads(text[len(EVENT):])
  except ValueError:  # a line that was cut when the program died
    return {}


def _kill(process: Any) -> None:
  """Kills what is left of the program's session."""
  try:
    os.killpg(process.pid, signal.SIGKILL)
  except ProcessLookupError:
    pass
  try:
    process.wait(timeout=30)
  except subprocess.TimeoutExpired:
    pass  # stuck in the driver: it goes when the driver lets it
