"""Runs a command as two hosts of one run on this machine, for test_soak.

    python tests/two_hosts.py COMMAND ...

Ends when both do. Both are in the process group of this program, and get the
SIGTERM that it gets.
"""
import json
import os
import signal
import subprocess
import sys

import programs


def main(command):
  """Returns the status of the run."""
  addresses = ["localhost:%d" % port for port in programs.free_ports(2)]
  tasks = [{"type": "chief", "index": 0}, {"type": "worker", "index": 0}]
  processes = []
  asked = []

  def terminate(number, frame):
    del frame
    asked.append(number)
    for process in processes:
      process.terminate()

  signal.signal(signal.SIGTERM, terminate)
  for task in tasks:
    config = {"cluster": {"chief": addresses[:1], "worker": addresses[1:]},
              "task": task}
    processes.append(subprocess.Popen(
        command, env=dict(os.environ, TF_CONFIG=json.dumps(config))))
  if asked:  # between the two
    terminate(*asked, None)
  statuses = [process.wait() for process in processes]
  print("statuses of the hosts:", statuses)
  if asked:
    # One that ends in its start may leave the other without its partner.
    stopped = {0, 1, 128 + signal.SIGTERM, -signal.SIGTERM}
    return 128 + signal.SIGTERM if set(statuses) <= stopped else 1
  return max(abs(status) for status in statuses)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
