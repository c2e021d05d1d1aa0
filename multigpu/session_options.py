"""Number formats and XLA: options of the session, the same for all tasks."""
import os
import re
from typing import Any

import tensorflow.compat.v1 as tf

from multigpu.errors import UserError

FP32 = "fp32"
FP16 = "fp16"
BF16 = "bf16"
PRECISIONS = (FP32, FP16, BF16)

_ON = 1  # RewriterConfig.Toggle.ON

# Read by TensorFlow's rewrite. These operations take the format of their input,
# as their bfloat16 kernels on the CPU are slower than those of float32.
_BF16_SETTINGS = {
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE":
        "Sigmoid,SigmoidGrad",
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_CLEARLIST_REMOVE": "SelectV2",
}


def set_precision(session_config: Any, precision: str, kind: str) -> None:
  """Has the runtime rewrite the graph for a number format.

  The graph itself stays float32, and so do weights and slots.

  Args:
    session_config: tf.ConfigProto, changed in place.
    precision: one of PRECISIONS.
    kind: "GPU" or "CPU".

  Raises:
    UserError: this runtime or machine does not have the format.
  """
  rewrites = session_config.graph_options.rewrite_options
  if precision == FP16:
    # Without effect on the CPU, where only the loss scaling is at work.
    rewrites.auto_mixed_precision = _ON
  elif precision == BF16:
    _check_bfloat16(rewrites, kind)
    rewrites.auto_mixed_precision_onednn_bfloat16 = _ON
    for name, value in _BF16_SETTINGS.items():
      os.environ.setdefault(name, value)


def _check_bfloat16(rewrites: Any, kind: str) -> None:
  if not hasattr(rewrites, "auto_mixed_precision_onednn_bfloat16"):
    raise UserError(
        "--precision=bf16 needs TensorFlow 2 and this is {}: pass "
        "--precision=fp16 on GPUs, or fp32.".format(tf.__version__))
  if kind == "GPU":
    raise UserError(
        "--precision=bf16: TensorFlow {} rewrites graphs for bfloat16 on CPUs "
        "only: pass --precision=fp16 on GPUs.".format(tf.__version__))
  if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false"):
    raise UserError(
        "--precision=bf16 needs oneDNN's kernels, which the environment "
        "switches off: remove TF_ENABLE_ONEDNN_OPTS from it.")
  if not _cpu_has("avx512f"):
    raise UserError(
        "--precision=bf16 needs a CPU with AVX-512, better with AVX512_BF16 or "
        "AMX, and this one has none: pass --precision=fp32.")


def _cpu_has(feature: str) -> bool:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as reader:
      match = re.search(r"^flags\s*:.*$", reader.read(), re.MULTILINE)
  except OSError:
    return False
  return match is not None and feature in match.group().split()


def use_xla(session_config: Any, kind: str, num_replicas: int) -> None:
  """Has XLA compile the graph, in clusters that it finds itself.

  Args:
    session_config: tf.ConfigProto, changed in place.
    kind: "GPU" or "CPU".
    num_replicas: number of devices.

  Raises:
    UserError: this runtime cannot.
  """
  if kind == "CPU" and num_replicas > 1 and tf.__version__.startswith("1."):
    # It reports variables as not initialised that were.
    raise UserError(
        "--use_xla: TensorFlow {} cannot run it on several CPU replicas: pass "
        "--num_gpus=1, or leave the flag out.".format(tf.__version__))
  session_config.graph_options.optimizer_options.global_jit_level = (
      tf.OptimizerOptions.ON_1)
  if kind == "CPU":
    # Read when the first graph is compiled. Without it XLA leaves CPUs out.
    flags = os.environ.get("TF_XLA_FLAGS", "")
    os.environ["TF_XLA_FLAGS"] = flags + " --tf_xla_cpu_global_jit"
