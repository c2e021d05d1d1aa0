"""Which hosts train together: reads TF_CONFIG and checks it. No TensorFlow.

Schedulers set this variable on each host, for example on the second of two:

    {"cluster": {"chief": ["a:2222"], "worker": ["b:2222"]},
     "task": {"type": "worker", "index": 0}}

Without a chief in the cluster the first worker is the chief.
"""
import contextlib
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional
from typing import Sequence, Tuple

from multigpu.errors import UserError

TF_CONFIG = "TF_CONFIG"
_EXAMPLE = ('{"cluster": {"chief": ["a:2222"], "worker": ["b:2222"]}, '
            '"task": {"type": "worker", "index": 0}}')
# Those that may be in a cluster, the first one first.
_TYPES = ("chief", "master", "worker")


class Hosts(NamedTuple):
  """The hosts of a run, the chief first."""
  addresses: Sequence[str]  # "host:port", where TensorFlow's server listens
  names: Sequence[str]  # as the user's TF_CONFIG calls them: "worker 1"
  rank: int  # of this host: its place in them

  @property
  def size(self) -> int:
    """Number of hosts."""
    return len(self.addresses)

  @property
  def is_chief(self) -> bool:
    """Whether this host writes checkpoints and results."""
    return self.rank == 0

  def describe(self, rank: Optional[int] = None) -> str:
    """For example "worker 0 (b:2222)"; this host where no rank is given."""
    rank = self.rank if rank is None else rank
    return "{} ({})".format(self.names[rank], self.addresses[rank])

  def own_dir(self, output_dir: str) -> str:
    """The folder of this host: the chief's is output_dir itself."""
    if self.is_chief:
      return output_dir
    return os.path.join(output_dir, "worker-{}".format(self.rank))

  @contextlib.contextmanager
  def environment(self) -> Iterator[None]:
    """Shows TensorFlow these hosts.

    Only while it needs them: a run's evaluation is on one host, and must not
    find them.
    """
    before = os.environ.get(TF_CONFIG)
    # In one form, whatever the user's was.
    task = {"type": "worker", "index": self.rank - 1}
    if self.is_chief:
      task = {"type": "chief", "index": 0}
    os.environ[TF_CONFIG] = json.dumps({
        "cluster": {"chief": [self.addresses[0]],
                    "worker": list(self.addresses[1:])},
        "task": task})
    try:
      yield
    finally:
      os.environ.pop(TF_CONFIG)
      if before is not None:
        os.environ[TF_CONFIG] = before


def read(environment: Mapping[str, str]) -> Optional[Hosts]:
  """Reads TF_CONFIG.

  Args:
    environment: os.environ.

  Returns:
    The hosts; None where the variable is not set, or names no other host.

  Raises:
    UserError: it is wrong, or has tasks that there are none for here.
  """
  text = environment.get(TF_CONFIG, "").strip()
  config = _parse(text) if text else {}
  if not config.get("cluster"):
    return None
  tasks = _read_cluster(config["cluster"])
  chosen = _read_task(config.get("task"), [name for name, _ in tasks])
  if len(tasks) == 1:
    return None
  return Hosts(addresses=[address for _, address in tasks],
               names=[name for name, _ in tasks], rank=chosen)


def split_address(address: str) -> Tuple[str, int]:
  """"host:port" -> (host, port); an IPv6 address stands in brackets."""
  host, _, port = address.rpartition(":")
  return host.strip("[]"), int(port)


def _parse(text: str) -> Dict[str, Any]:
  try:
    config = json.loads(text)
  except ValueError as error:
    raise _wrong("is not JSON ({})".format(error)) from error
  if not isinstance(config, dict):
    raise _wrong("is no JSON object")
  return config


def _read_cluster(cluster: Any) -> List[Tuple[str, str]]:
  """Returns [(name, address)], the chief first."""
  if not isinstance(cluster, dict):
    raise _wrong('"cluster" is no object of lists of addresses')
  for kind in sorted(cluster):
    if kind in ("ps", "evaluator") and cluster[kind]:
      raise UserError(
          "{} has tasks of type \"{}\", which have nothing to do here: all "
          "hosts train, the chief evaluates after the training. Leave \"{}\" "
          "out of the cluster.".format(TF_CONFIG, kind, kind))
    if kind not in _TYPES + ("ps", "evaluator"):
      raise _wrong('"cluster" has tasks of type "{}", wanted "chief" and '
                   '"worker"'.format(kind))
  tasks = []
  for kind in _TYPES:
    addresses = cluster.get(kind) or []
    if not isinstance(addresses, list):
      raise _wrong('"cluster": "{}" is no list of addresses'.format(kind))
    tasks += [("chief" if kind != "worker" else "worker {}".format(i),
               _check_address(address, kind))
              for i, address in enumerate(addresses)]
  if [name for name, _ in tasks].count("chief") > 1:
    raise _wrong('"cluster" has more than one chief')
  if not tasks:
    raise _wrong('"cluster" has neither "chief" nor "worker"')
  seen = [address for _, address in tasks]
  twice = sorted({address for address in seen if seen.count(address) > 1})
  if twice:
    raise _wrong('"cluster" has the address {} more than once'.format(
        twice[0]))
  return tasks


def _check_address(address: Any, kind: str) -> str:
  if isinstance(address, str):
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and 0 < int(port) < 65536:
      return address
  raise _wrong('"cluster": "{}" has the address {}, wanted "host:port"'.format(
      kind, json.dumps(address)))


def _read_task(task: Any, names: List[str]) -> int:
  """Returns the place of this task in the list of all."""
  if not isinstance(task, dict) or "type" not in task:
    raise _wrong('"task" does not say which of the hosts this one is')
  kind, index = task["type"], task.get("index", 0)
  if kind in ("ps", "evaluator"):
    raise UserError(
        "{}: this task is \"{}\", and there is nothing to do for it here: all "
        "hosts train, the chief evaluates after the training. Start \"chief\" "
        "and \"worker\" only.".format(TF_CONFIG, kind))
  name = ("worker {}".format(index) if kind == "worker"
          else "chief" if kind in _TYPES and str(index) == "0" else None)
  if name not in names:
    raise _wrong('"task" is {} {}, and the cluster has {}'.format(
        json.dumps(kind), json.dumps(index), ", ".join(names)))
  return names.index(name)


def _wrong(what: str) -> UserError:
  return UserError("{} {}. An example of a right one: {}".format(
      TF_CONFIG, what, _EXAMPLE))
