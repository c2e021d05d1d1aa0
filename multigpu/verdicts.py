"""Judges what the processes of `multigpu.verification` found.

A judge takes the result of a job, as `multigpu.verification_jobs` reports it,
and returns a `Verdict`.
"""
import os
import statistics
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from multigpu import watching

PASSED, FAILED, HUNG, UNAVAILABLE = (
    "passed", "FAILED", "HANGS", "not available here")

# Largest difference of the losses of two trainings, as a share of what the loss
# falls by: one that does not train at all has 1. Between numbers of replicas
# only the order of float32 additions differs; half precision has 3 (fp16) or 2
# (bf16) digits.
LOSS_TOLERANCE = 1e-3
LOSS_TOLERANCE_HALF = 1e-1
# Relative difference of the loss of a predicted row.
PREDICTION_TOLERANCE = 1e-4
# Distance of the weights after training, as a share of the way that they went.
# A replica whose gradient is lost, or clipped by itself, makes it 0.1 and more.
WEIGHTS_TOLERANCE = 1e-2
# Steps that are not timed: building, memory, choice of kernels.
WARM_UP_STEPS = 3

HANG_ADVICE = (
    "The replicas wait for each other. Try --all_reduce=hierarchical_copy, or "
    "the environment variable NCCL_P2P_DISABLE=1 (copies between GPUs are "
    "often blocked by the mainboard's IOMMU or by a virtual machine); with "
    "NCCL_DEBUG=INFO the log says what NCCL waits for. A slow machine may only "
    "need a larger --step_timeout.")
START_ADVICE = (
    "The first start on GPUs that are newer than this TensorFlow compiles all "
    "kernels, for many minutes and only once: try again, or pass a larger "
    "--step_timeout.")
MEMORY_ADVICE = "Out of memory: pass a smaller --batch_per_gpu."


class Verdict(NamedTuple):
  """What a job showed."""
  problem: Optional[str]  # None = all right
  details: str
  figures: Dict[str, Any] = {}


class Result(NamedTuple):
  """Outcome of one check or measurement."""
  name: str
  status: str
  details: str
  seconds: float = 0.0
  figures: Dict[str, Any] = {}


def all_passed(results: List[Result]) -> bool:
  """Whether all that is available here works."""
  return all(result.status in (PASSED, UNAVAILABLE) for result in results)


def judge_alone(found: Dict[str, Any]) -> Verdict:
  """A training on 1 replica: the others are compared with it."""
  losses = found["losses"]
  is_right = np.isfinite(losses).all() and losses[-1] < losses[0]
  return Verdict(
      None if is_right else "the loss does not fall",
      "loss {:.4f} to {:.4f}".format(losses[0], losses[-1]),
      {"losses": losses})


def compare_losses(found: Dict[str, Any], reference: Dict[str, Any],
                   tolerance: float = LOSS_TOLERANCE_HALF) -> Verdict:
  """Two trainings on the same rows, step by step.

  Only the losses: Adam moves a weight by the sign of its gradient in the first
  steps, and in half precision small gradients have another sign.
  """
  wanted = reference["losses"]
  difference = _largest_difference(
      found["losses"], wanted, wanted[0] - wanted[-1])
  return Verdict(
      # Written so that NaN is a problem.
      None if difference <= tolerance else "trains something else than 1 "
      "replica",
      "losses differ by {:.1e} of their fall (allowed {:.0e})".format(
          difference, tolerance),
      {"losses": found["losses"], "loss_difference": difference,
       "num_skipped_updates": found["num_skipped"]})


def compare_training(found: Dict[str, Any],
                     reference: Dict[str, Any]) -> Verdict:
  """Two trainings on the same rows that must end with the same weights."""
  verdict = compare_losses(found, reference, LOSS_TOLERANCE)
  distance = weights_distance(reference["work_dir"], found["work_dir"])
  problem = verdict.problem
  if not distance <= WEIGHTS_TOLERANCE:
    problem = "trains something else than 1 replica"
  return Verdict(
      problem, "{}, weights by {:.1e} of their way (allowed {:.0e})".format(
          verdict.details, distance, WEIGHTS_TOLERANCE),
      dict(verdict.figures, weights_distance=distance))


def compare_prediction(found: Dict[str, Any], reference: Dict[str, Any],
                       num_rows: int) -> Verdict:
  """Each row once, in order, as 1 replica predicts it."""
  labels = found["label_ids"]
  if labels != list(range(num_rows)):
    return Verdict("not each row once and in order",
                   "wanted 0 to {}, came {}".format(num_rows - 1, labels))
  difference = _largest_difference(
      found["losses"], reference["losses"], np.array(reference["losses"]))
  return Verdict(
      None if difference <= PREDICTION_TOLERANCE else "predicts something else "
      "than 1 replica",
      "{} rows, each once and in order, losses differ by {:.1e}".format(
          num_rows, difference),
      {"num_rows": num_rows, "loss_difference": difference})


def measure(found: Dict[str, Any], num_replicas: int,
            batch_per_gpu: int) -> Verdict:
  """The speed of a timed training."""
  step = statistics.median(found["step_seconds"][WARM_UP_STEPS:])
  speed = num_replicas * batch_per_gpu / step
  return Verdict(
      None, "{:.1f} examples/s, {:.3f} s a step".format(speed, step),
      {"num_replicas": num_replicas, "examples_per_second": speed,
       "median_step_seconds": step,
       "peak_memory_bytes": max(found["peak_memory"].values(), default=None)})


def with_efficiency(results: List[Result]) -> List[Result]:
  """Adds speed / (number of replicas x speed of 1); the first is that of 1."""
  one = results[0].figures.get("examples_per_second")
  return [
      result._replace(figures=dict(
          result.figures, efficiency=result.figures["examples_per_second"]
          / (result.figures["num_replicas"] * one)))
      if one and result.figures else result for result in results]


def weights_distance(reference_dir: str, other_dir: str) -> float:
  """Distance of two trainings' last weights, divided by the way of the first.

  Both began with the same weights: `model.ckpt-0` of the reference.
  """
  reference, other, start = (tf.train.load_checkpoint(path) for path in (
      tf.train.latest_checkpoint(reference_dir),
      tf.train.latest_checkpoint(other_dir),
      os.path.join(reference_dir, "model.ckpt-0")))
  distance = way = 0.0
  for name in reference.get_variable_to_shape_map():
    if name.endswith(("/adam_m", "/adam_v")) or name == "global_step":
      continue
    value = reference.get_tensor(name).astype(np.float64)
    distance += float(np.sum(np.square(other.get_tensor(name) - value)))
    way += float(np.sum(np.square(start.get_tensor(name) - value)))
  return float(np.sqrt(distance / way)) if way else float("nan")


def describe_failure(outcome: watching.Outcome, log: str) -> str:
  """What a person needs to know of a job without a result."""
  found = outcome.found
  if outcome.hung_in:
    is_step = outcome.hung_in.startswith("step ")
    return "no progress in {}: the process was ended. {} Log: {}".format(
        outcome.hung_in, HANG_ADVICE if is_step else START_ADVICE, log)
  text = (found.get(watching.UNAVAILABLE) or found.get(watching.ERROR)
          or "the process ended with status {}".format(outcome.status))
  if "ResourceExhausted" in text or "OOM" in text:
    text += " " + MEMORY_ADVICE
  return "{} Log: {}".format(text, log)


def _largest_difference(values: Any, wanted: Any, unit: Any) -> float:
  """The largest of two lists; infinite for another number of values."""
  if len(values) != len(wanted):
    return float("inf")
  return float(np.max(np.abs((np.array(values) - np.array(wanted)) / unit)))
