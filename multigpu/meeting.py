"""The hosts of a run in touch with each other, beside TensorFlow's own servers.

TensorFlow waits forever for a host that does not answer, or that has died. So
all hosts connect to the chief before it starts, and stay connected: they say
whom they wait for, agree on what they train, and end when one of them has
ended. No TensorFlow.
"""
import logging
import os
import queue
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from multigpu.errors import UserError
from multigpu.hosts import Hosts
from multigpu.joining import Link, Pace, find_unreachable, join, listen

_LOG = logging.getLogger(__name__)


class Meeting:
  """All hosts of a run, from `join` to `leave`."""

  def __init__(self, hosts: Hosts, timeout: float, pace: Pace = Pace()):
    """Args:

      hosts: all of them.
      timeout: seconds to wait for the others in `join`.
      pace: other times.
    """
    self.hosts = hosts
    self.failure: Optional[str] = None
    self._timeout = timeout
    self._pace = pace
    self._links: Dict[int, Link] = {}
    self._inboxes: Dict[int, Any] = {}
    self._leaving = threading.Event()
    self._failure_lock = threading.Lock()

  def join(self) -> None:
    """Connects to the other hosts.

    Raises:
      UserError: one of them did not answer in time.
    """
    with listen(self.hosts) as listener:
      self._links = join(self.hosts, listener, self._timeout, self._pace)
      self._start_threads()
      problems = self.gather("reach the others", find_unreachable(
          self.hosts, self._pace.connect))
    for problem in sum(problems, []):
      raise UserError("{}: the ports of TF_CONFIG must be open between all "
                      "hosts.".format(problem))
    _LOG.info("All %d hosts are here. This is %s.", self.hosts.size,
              self.hosts.describe())

  def _start_threads(self) -> None:
    for rank, link in self._links.items():
      self._inboxes[rank] = queue.Queue()
      threading.Thread(target=self._listen, args=(rank, link),
                       daemon=True).start()
    threading.Thread(target=self._beat, daemon=True).start()

  def gather(self, name: str, value: Any = None) -> List[Any]:
    """Waits for all hosts; returns the values that they bring, chief first.

    All call it in the same order. There is no limit to the time: the others are
    alive, and may have data to prepare.

    Args:
      name: what the hosts do before, for the log.
      value: anything that JSON can tell.

    Raises:
      UserError: a host has ended.
    """
    if not self.hosts.is_chief:
      self._send(0, kind="value", value=value)
      return self._wait_for(0, name)
    values = [value] + [self._wait_for(rank, name)
                        for rank in range(1, self.hosts.size)]
    for rank in self._links:
      self._send(rank, kind="value", value=values)
    return values

  def leave(self) -> None:
    """Ends the connections, when all hosts are done."""
    self.gather("finish the training")
    self._leaving.set()
    for rank, link in self._links.items():
      self._send(rank, kind="bye")
      link.close()

  def wait_for_failure(self) -> Optional[str]:
    """What has ended another host, if it has: the news may take a moment."""
    deadline = time.monotonic() + self._pace.beat
    while self.failure is None and time.monotonic() < deadline:
      time.sleep(0.05)
    return self.failure

  def _wait_for(self, rank: int, name: str) -> Any:
    begin = time.monotonic()
    while True:
      try:
        message = self._inboxes[rank].get(timeout=self._pace.report)
      except queue.Empty:
        _LOG.info("waiting for %s to %s, for %d s so far",
                  self.hosts.describe(rank), name, time.monotonic() - begin)
        continue
      if message is None:
        raise UserError(self.failure)
      return message["value"]

  def _send(self, rank: int, **message: Any) -> None:
    try:
      self._links[rank].send(**message)
    except OSError:
      pass  # the thread that listens finds out, and says so

  def _listen(self, rank: int, link: Link) -> None:
    """Reads all that a host says; ends this program where that one ends."""
    while True:
      try:
        message = link.receive()
      except OSError as error:
        self._fail("{} has ended, or cannot be reached any more ({}): its own "
                   "output says why. This host ends too; start all of them "
                   "again to go on from the newest checkpoint.".format(
                       self.hosts.describe(rank), error))
        return
      if message.get("kind") == "value":
        self._inboxes[rank].put(message)
      elif message.get("kind") == "failure":
        self._fail(str(message.get("text")))
        return
      elif message.get("kind") == "bye":
        return

  def _beat(self) -> None:
    while not self._leaving.wait(self._pace.beat):
      for rank in self._links:
        self._send(rank, kind="alive")

  def _fail(self, text: str) -> None:
    """Ends this program, because another host has ended."""
    with self._failure_lock:
      if self._leaving.is_set() or self.failure is not None:
        return
      self.failure = text
    if self.hosts.is_chief:
      for rank in self._links:
        self._send(rank, kind="failure", text=text)
    for inbox in self._inboxes.values():
      inbox.put(None)
    # The main thread may be inside TensorFlow, which waits for the dead.
    if not self._leaving.wait(self._pace.grace):
      _end_program(text)


def _end_program(text: str) -> None:
  """Ends the process from a thread, wherever the main thread is."""
  print("ERROR: {}".format(text), file=sys.stderr)
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(1)
