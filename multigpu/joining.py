"""How the hosts of a run find each other: all of them call the chief.

The chief listens at its own address of TF_CONFIG, before TensorFlow's server
does. Messages are JSON objects, one a line. No TensorFlow.
"""
import json
import logging
import socket
import threading
import time
from typing import Any, Dict, List, NamedTuple

from multigpu.errors import UserError
from multigpu.hosts import Hosts, split_address

_LOG = logging.getLogger(__name__)

_GREETING = "multigpu 1"


class Pace(NamedTuple):
  """Seconds; shorter ones are for tests."""
  # After this the log says who is missing, and again after each such time.
  report: float = 30.0
  # Between two signs of life, and without one until a host counts as dead.
  beat: float = 5.0
  silence: float = 60.0
  retry: float = 1.0
  # To wait for a connection.
  connect: float = 10.0
  # From the death of another host to our own, for the main thread to end by
  # itself.
  grace: float = 10.0


class Link:
  """A connection to another host."""

  def __init__(self, connection: Any, silence: float):
    connection.settimeout(silence)
    self._connection = connection
    self._reader = connection.makefile("rb")
    self._lock = threading.Lock()

  def send(self, **message: Any) -> None:
    """Raises OSError where the host is gone."""
    data = (json.dumps(message) + "\n").encode("utf-8")
    with self._lock:
      self._connection.sendall(data)

  def receive(self) -> Dict[str, Any]:
    """Raises OSError where the host is gone, or is none of ours."""
    line = self._reader.readline(1 << 20)
    if not line.endswith(b"\n"):
      raise OSError("the connection was closed")
    try:
      message = json.loads(line.decode("utf-8"))
    except ValueError as error:
      raise OSError("another program answers there") from error
    if not isinstance(message, dict):
      raise OSError("another program answers there")
    return message

  def close(self) -> None:
    """Ends the connection, also for a thread that reads from it."""
    try:
      self._connection.shutdown(socket.SHUT_RDWR)
    except OSError:
      pass  # it has ended already
    self._connection.close()


def join(hosts: Hosts, listener: Any, timeout: float,
         pace: Pace) -> Dict[int, Link]:
  """Waits until all hosts are there.

  Args:
    hosts: all of them.
    listener: a socket at this host's port.
    timeout: seconds to wait.
    pace: other times.

  Returns:
    {rank: connection}: the chief's to all others, or the others' to the chief.

  Raises:
    UserError: one of them did not answer in time.
  """
  if hosts.is_chief:
    return _Welcome(hosts, timeout, pace).run(listener)
  return {0: _call_chief(hosts, timeout, pace)}


def find_unreachable(hosts: Hosts, timeout: float) -> List[str]:
  """Calls each host that listens; says which ones do not answer.

  TensorFlow connects all with each other, not only with the chief.
  """
  problems = []
  for rank in range(1, hosts.size):
    if rank == hosts.rank:
      continue
    try:
      socket.create_connection(split_address(hosts.addresses[rank]),
                               timeout=timeout).close()
    except OSError as error:
      problems.append("{} cannot reach {} ({})".format(
          hosts.describe(), hosts.describe(rank), error))
  return problems


class _Patience:
  """Says whom we wait for, and when to stop."""

  def __init__(self, timeout: float, pace: Pace):
    self._timeout = timeout
    self._begin = time.monotonic()
    self._report = pace.report
    self._next = self._begin + pace.report

  def check(self, whom: str, why: str = "") -> None:
    """Logs when it is time; raises UserError when there is no more."""
    now = time.monotonic()
    why = why and " ({})".format(why)
    if now - self._begin >= self._timeout:
      raise UserError(
          "waited {:.0f} s for {}{}: are all hosts started, with one TF_CONFIG "
          "but for the task, and can they reach each other's ports? "
          "--worker_timeout sets how long to wait.".format(
              self._timeout, whom, why))
    if now >= self._next:
      _LOG.info("waiting for %s%s, for %d s of %d so far", whom, why,
                now - self._begin, self._timeout)
      self._next = now + self._report


class _Welcome:
  """The chief's part of `join`: waits until all have called."""

  def __init__(self, hosts: Hosts, timeout: float, pace: Pace):
    self._hosts = hosts
    self._pace = pace
    self._patience = _Patience(timeout, pace)
    self._links: Dict[int, Link] = {}

  def run(self, listener: Any) -> Dict[int, Link]:
    """Returns a connection to each of the others."""
    try:
      listener.settimeout(self._pace.retry)
      while self._missing():
        self._accept(listener)
        self._tell_missing()
    except UserError as error:
      for link in self._links.values():
        _try_to_send(link, kind="failure", text="the chief: {}".format(error))
      raise
    for link in self._links.values():
      _try_to_send(link, kind="all here")
    return self._links

  def _missing(self) -> List[int]:
    return [i for i in range(1, self._hosts.size) if i not in self._links]

  def _accept(self, listener: Any) -> None:
    try:
      connection, _ = listener.accept()
    except socket.timeout:
      return
    # Whoever says nothing for this long is none of ours.
    connection.settimeout(self._pace.beat)
    link = Link(connection, self._pace.beat)
    try:
      message = link.receive()
    except OSError:
      link.close()
      return
    rank: Any = message.get("rank")
    if (message.get("greeting") != _GREETING
        or message.get("addresses") != list(self._hosts.addresses)
        or rank not in range(1, self._hosts.size)):
      _try_to_send(link, kind="failure", text=(
          "the chief at {} has another TF_CONFIG, with the hosts {}: give all "
          "hosts the same cluster.".format(self._hosts.addresses[0],
                                           ", ".join(self._hosts.addresses))))
      _LOG.warning("another host called with other hosts in its TF_CONFIG: %s",
                   message.get("addresses"))
      link.close()
      return
    connection.settimeout(self._pace.silence)
    # A host that was started again counts anew.
    if rank in self._links:
      self._links[rank].close()
    self._links[rank] = link

  def _tell_missing(self) -> None:
    missing = [self._hosts.describe(rank) for rank in self._missing()]
    if not missing:
      return
    for rank, link in list(self._links.items()):
      if not _try_to_send(link, kind="waiting", hosts=missing):
        del self._links[rank]
    self._patience.check(", ".join(missing))


def _call_chief(hosts: Hosts, timeout: float, pace: Pace) -> Link:
  """The others' part of `join`: calls until the chief answers."""
  patience = _Patience(timeout, pace)
  while True:
    link = None
    try:
      chief = split_address(hosts.addresses[0])
      link = Link(socket.create_connection(chief, timeout=pace.connect),
                  pace.silence)
      link.send(greeting=_GREETING, rank=hosts.rank,
                addresses=list(hosts.addresses))
      _wait_for_others(link, patience)
      return link
    except OSError as error:
      if link is not None:
        link.close()
      patience.check("the chief ({})".format(hosts.addresses[0]), str(error))
      time.sleep(pace.retry)


def _wait_for_others(link: Link, patience: _Patience) -> None:
  """Returns when the chief says that all are here."""
  while True:
    message = link.receive()
    kind = message.get("kind")
    if kind == "all here":
      return
    if kind == "failure":
      raise UserError(str(message.get("text")))
    if kind != "waiting":
      raise OSError("another program answers there")
    patience.check(", ".join(message["hosts"]))


def _try_to_send(link: Link, **message: Any) -> bool:
  try:
    link.send(**message)
  except OSError:
    return False
  return True


def listen(hosts: Hosts) -> Any:
  """Listens at the port of this host, on all its addresses.

  Raises:
    UserError: the port is taken.
  """
  port = split_address(hosts.addresses[hosts.rank])[1]
  try:
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    any_address = "::"
  except OSError:  # a machine without IPv6
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    any_address = ""
  # Else the port could not be used for minutes after an earlier run.
  listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  try:
    listener.bind((any_address, port))
    listener.listen(128)
  except OSError as error:
    listener.close()
    raise UserError(
        "port {}, which TF_CONFIG gives to this host, cannot be used ({}): "
        "does an earlier run still go on, or do two tasks have one "
        "\"index\"?".format(port, error)) from error
  return listener
