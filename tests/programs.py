"""Runs the project's programs the way a user does."""
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

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
  completed = subprocess.run(
      make_command(script, flags), cwd=str(cwd), timeout=timeout, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
  return Outcome(completed)


def make_command(script, flags):
  """The command line of `script --flag=value ...`, on the CPU."""
  flags = dict(dict(device_type="cpu"), **flags)
  return [sys.executable, str(ROOT / script)] + [
      "--%s=%s" % item for item in sorted(flags.items())
      if item[1] is not None]


def free_ports(count):
  """Ports that nobody uses now."""
  sockets = [socket.socket() for _ in range(count)]
  with contextlib.ExitStack() as stack:
    for one in sockets:
      stack.enter_context(one)
      one.bind(("localhost", 0))
    return [one.getsockname()[1] for one in sockets]


class Hosts:
  """Several processes on this machine, each a host of one run."""

  def __init__(self, script, cwd, of_worker=None, **flags):
    """Starts two, the chief first.

    Args:
      script, cwd, flags: as for `run`.
      of_worker: what is different for the second one.
    """
    addresses = ["localhost:%d" % port for port in free_ports(2)]
    self._logs = [tempfile.TemporaryFile("w+") for _ in addresses]
    self.processes = []
    self._failed = time.monotonic()
    for i, log in enumerate(self._logs):
      task = {"type": "worker", "index": i - 1} if i else {
          "type": "chief", "index": 0}
      config = {"cluster": {"chief": addresses[:1], "worker": addresses[1:]},
                "task": task}
      self.processes.append(subprocess.Popen(
          make_command(script, dict(flags, **(i and of_worker or {}))),
          cwd=str(cwd), text=True,
          stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
          env=dict(os.environ, CUDA_VISIBLE_DEVICES="",
                   TF_CONFIG=json.dumps(config))))

  def wait(self, timeout=600):
    """Returns the Outcome of each; none of them is left behind."""
    deadline = time.monotonic() + timeout
    while (any(one.poll() is None for one in self.processes)
           and time.monotonic() < deadline):
      # One that has failed ends the others, soon.
      if any(one.poll() for one in self.processes):
        deadline = min(deadline, self._failed + 60)
      else:
        self._failed = time.monotonic()
      time.sleep(0.1)
    for one in self.processes:
      one.kill()
      one.wait()
    statuses = [one.returncode for one in self.processes]
    outputs = []
    for log in self._logs:
      log.seek(0)
      outputs.append(log.read())
      log.close()
    return [Outcome(subprocess.CompletedProcess([], status, output))
            for status, output in zip(statuses, outputs)]
