"""Which devices a run uses, and the distribution strategy over them.

Only as many GPUs are taken as the run was told to use. The choice is made
through CUDA_VISIBLE_DEVICES before TensorFlow looks at any GPU: TensorFlow 1.15
reserves memory on every GPU that it can see, whatever the session says.
"""
import glob
import os
import subprocess
from typing import Any, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from multigpu import session_options
from multigpu.errors import UserError
from multigpu.hosts import Hosts

DEVICE_TYPES = ("auto", "gpu", "cpu")
ALL_REDUCE = ("auto", "nccl", "hierarchical_copy", "reduce_to_one")
# Between hosts TensorFlow has only these, and "auto".
RING = "ring"
ACROSS_HOSTS = ("auto", "nccl", RING)


class DeviceSettings(NamedTuple):
  """What the user asked for."""
  num_gpus: int = 1
  device_type: str = "auto"
  all_reduce: str = "auto"
  precision: str = session_options.FP32
  use_xla: bool = False


class Devices(NamedTuple):
  """The devices of a run: those of this process, or of several hosts."""
  kind: str  # "GPU" or "CPU"
  num_replicas: int  # on all hosts
  strategy: Any  # MirroredStrategy or MultiWorkerMirroredStrategy
  session_config: Any  # tf.ConfigProto
  hosts: Optional[Hosts] = None  # None = this one alone

  @property
  def num_local_replicas(self) -> int:
    """Replicas on this host; all hosts have as many."""
    return self.num_replicas // (self.hosts.size if self.hosts else 1)

  def describe(self) -> str:
    """For example "2 GPUs", "1 CPU replica" or "2 hosts x 1 GPU"."""
    prefix = "{} hosts x ".format(self.hosts.size) if self.hosts else ""
    return prefix + self.describe_local()

  def describe_local(self) -> str:
    """The same of this host alone."""
    noun = "GPU" if self.kind == "GPU" else "CPU replica"
    return "{} {}{}".format(self.num_local_replicas, noun,
                            "" if self.num_local_replicas == 1 else "s")

  def local(self) -> "Devices":
    """Those of this host, for work that it does alone."""
    if self.hosts is None:
      return self
    count = self.num_local_replicas
    return Devices(self.kind, count, _mirrored_strategy(self.kind, count),
                   self.session_config)


def set_up(settings: DeviceSettings, hosts: Optional[Hosts] = None) -> Devices:
  """Takes the devices that were asked for.

  The code is the same for GPUs and for CPU replicas, and for one replica and
  many: a run on one GPU is a MirroredStrategy with one replica.

  Args:
    settings: the devices of each host.
    hosts: those that train together; None = this one alone.

  Raises:
    UserError: there are not as many GPUs, or the settings contradict.
  """
  if settings.num_gpus < 1:
    raise UserError("--num_gpus={}, wanted 1 or more.".format(
        settings.num_gpus))
  gpus = [] if settings.device_type == "cpu" else visible_gpus()
  kind = "GPU" if gpus or settings.device_type == "gpu" else "CPU"
  if kind == "GPU" or (settings.device_type == "auto"
                       and settings.num_gpus > 1):
    _take_gpus(gpus, settings.num_gpus)
  elif settings.all_reduce == "nccl":
    raise UserError("--all_reduce=nccl needs GPUs, but this run is on the CPU: "
                    "pass --all_reduce=auto.")
  session_config = tf.ConfigProto(allow_soft_placement=True)
  if kind == "CPU":
    session_config.device_count["CPU"] = settings.num_gpus
  session_options.set_precision(session_config, settings.precision, kind)
  # Before the strategy, which makes TensorFlow read the flags of XLA.
  if settings.use_xla:
    session_options.use_xla(session_config, kind, settings.num_gpus)
  if hosts:
    return Devices(kind, settings.num_gpus * hosts.size,
                   _strategy_of_hosts(settings, kind, hosts), session_config,
                   hosts)
  if settings.all_reduce == RING:
    raise UserError("--all_reduce=ring is for several hosts (TF_CONFIG): pass "
                    "--all_reduce=auto.")
  strategy = _mirrored_strategy(kind, settings.num_gpus, settings.all_reduce)
  return Devices(kind, settings.num_gpus, strategy, session_config)


def _mirrored_strategy(kind: str, count: int, all_reduce: str = "auto") -> Any:
  # In TensorFlow 2 a strategy makes variables at once, outside of all graphs.
  # There only the session has a second CPU device.
  tf.config.set_soft_device_placement(True)
  return tf.distribute.MirroredStrategy(
      devices=["/{}:{}".format(kind.lower(), i) for i in range(count)],
      cross_device_ops=_cross_device_ops(all_reduce))


def _strategy_of_hosts(settings: DeviceSettings, kind: str,
                       hosts: Hosts) -> Any:
  """The strategy over the replicas of all hosts; connects to none of them."""
  if settings.all_reduce not in ACROSS_HOSTS:
    raise UserError("--all_reduce={} works within one host only: pass {} for "
                    "several.".format(settings.all_reduce,
                                      " or ".join(ACROSS_HOSTS)))
  if kind == "CPU":
    if settings.num_gpus > 1:
      raise UserError(
          "--num_gpus={} on the CPU: of several hosts each has one CPU "
          "replica. Pass --num_gpus=1 and start more tasks, also several on "
          "one machine (with other ports).".format(settings.num_gpus))
    # The strategy takes all GPUs that it sees.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
  communication = getattr(tf.distribute.experimental.CollectiveCommunication,
                          settings.all_reduce.upper())
  # In a graph: in eager mode TensorFlow 2 would start its server here, and wait
  # for the others.
  with hosts.environment(), tf.Graph().as_default():
    return tf.distribute.experimental.MultiWorkerMirroredStrategy(
        communication)


def visible_gpus() -> List[str]:
  """Ids of the GPUs that this process may use, without touching them.

  CUDA_VISIBLE_DEVICES is honoured as CUDA does: the list ends at the first
  entry that is not a GPU.
  """
  present = _count_gpus()
  chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
  if chosen is None:
    return [str(i) for i in range(present)]
  ids: List[str] = []
  for entry in chosen.split(","):
    entry = entry.strip()
    is_index = entry.isdigit() and int(entry) < present
    is_uuid = present > 0 and entry.startswith(("GPU-", "MIG-"))
    if not (is_index or is_uuid) or entry in ids:
      break
    ids.append(entry)
  return ids


def _count_gpus() -> int:
  """The number of NVIDIA GPUs, from the driver's own tool or its folder."""
  try:
    listing = subprocess.run(
        ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        timeout=60, check=True).stdout.decode("utf-8", "replace")
  except (OSError, subprocess.SubprocessError):
    return len(glob.glob("/proc/driver/nvidia/gpus/*"))
  return sum(line.startswith("GPU ") for line in listing.splitlines())


def _take_gpus(gpus: List[str], num_gpus: int) -> None:
  """Shows TensorFlow `num_gpus` GPUs and checks that it can use them."""
  if num_gpus > len(gpus):
    raise UserError(
        "--num_gpus={}, but this machine shows {} GPU{}: pass {}"
        "--device_type=cpu to run replicas on the CPU.".format(
            num_gpus, len(gpus), "" if len(gpus) == 1 else "s",
            "--num_gpus={}, or ".format(len(gpus)) if gpus else ""))
  os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[:num_gpus])
  seen = len(tf.config.experimental.list_physical_devices("GPU"))
  if seen < num_gpus:
    raise UserError(
        "--num_gpus={}: the driver shows {} GPUs, but TensorFlow {} can use {} "
        "of them. Its log above names the CUDA libraries that it misses; "
        "--device_type=cpu runs replicas on the CPU.".format(
            num_gpus, len(gpus), tf.__version__, seen))


def _cross_device_ops(all_reduce: str) -> Any:
  """The implementation of the all-reduce; None = TensorFlow's choice.

  The optimizer packs the gradients: here they stay as they come.
  """
  return {
      "auto": lambda: None,
      "nccl": lambda: tf.distribute.NcclAllReduce(num_packs=0),
      "hierarchical_copy":
          lambda: tf.distribute.HierarchicalCopyAllReduce(num_packs=0),
      "reduce_to_one": tf.distribute.ReductionToOneDevice,
  }[all_reduce]()
