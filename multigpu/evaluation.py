"""Evaluations during a training: scores, the best weights, an early end.

Lives here: when to evaluate, what is kept of it in output_dir, when to stop.
Not here: how a task scores (`Scoring`), and the loop over the rows
(`multigpu.inference`).

    output_dir/evaluations.json   the scores of each evaluation so far
    output_dir/best/              the best weights: a checkpoint without the
                                  optimizer's moments, and best.json
    output_dir/evaluated.tmp/     the weights that are being evaluated

A training that was killed goes on from a checkpoint that may be older than the
last evaluation. Evaluations after it are forgotten, as they come again.
"""
import json
import logging
import math
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional
from typing import Sequence

import tensorflow.compat.v1 as tf

from multigpu import checkpoints
from multigpu import interruption
from multigpu import weights_only
from multigpu.errors import UserError
from multigpu.files import read_json, write_text_atomically

_LOG = logging.getLogger(__name__)


class Scoring(NamedTuple):
  """How a task scores a checkpoint: the seam between tasks and this module."""
  # Takes a `runs.Run` and scores the newest checkpoint of its output_dir:
  # {name: value}.
  score: Callable[[Any], Mapping[str, Any]]
  # {name of a score: whether more of it is better}
  metrics: Mapping[str, bool]


class EvaluationSettings(NamedTuple):
  """What the user asked for."""
  every_steps: int = 0  # 0 = no evaluations during the training
  keep_best: str = ""  # a metric; "" = no weights are kept
  patience: int = 0  # evaluations without a better one; 0 = no early end


def best_dir(output_dir: str) -> str:
  """The folder of the best weights."""
  return os.path.join(output_dir, "best")


def check_metric(name: str, metrics: Mapping[str, bool]) -> None:
  """Raises UserError if the task has no metric of this name ("" = none)."""
  if name and name not in metrics:
    raise UserError("--keep_best={}, wanted one of {}.".format(
        name, ", ".join(sorted(metrics))))


def check_best(output_dir: str, metric: str, must_exist: bool) -> None:
  """Checks the best weights in a folder, if there are any.

  Raises:
    UserError: they are the best by another metric; there are none, but must be.
  """
  best = _read_best(output_dir)
  if best is None:
    if must_exist:
      raise UserError(
          "--keep_best={}, but {} holds no best weights: train with "
          "--eval_every_steps, or leave the flag out to take the newest "
          "checkpoint.".format(metric, output_dir))
  elif best["metric"] != metric:
    raise UserError(
        "--keep_best={}, but {} holds the best weights by {}: pass "
        "--keep_best={}, or move that folder away.".format(
            metric, best_dir(output_dir), best["metric"], best["metric"]))


def num_without_gain(values: Sequence[Optional[float]],
                     more_is_better: bool) -> int:
  """How many of the last values are no better than one before them.

  None and NaN are never better. Worked example: 0.5, 0.7, 0.6, 0.7 -> 2.
  """
  best: Optional[float] = None
  count = 0
  for value in values:
    if _is_better(value, best, more_is_better):
      best, count = value, 0
    else:
      count += 1
  return count


def _is_better(value: Optional[float], best: Optional[float],
               more_is_better: bool) -> bool:
  if value is None or math.isnan(value):
    return False
  return best is None or (value > best if more_is_better else value < best)


def _read_best(output_dir: str) -> Optional[Dict[str, Any]]:
  path = os.path.join(best_dir(output_dir), "best.json")
  return read_json(path) if tf.io.gfile.exists(path) else None


class Evaluator:
  """The evaluations of one training, and what they lead to."""

  def __init__(self, output_dir: str, settings: EvaluationSettings,
               metrics: Mapping[str, bool],
               score: Callable[[str, int], Mapping[str, Any]],
               first_step: int):
    """Reads what earlier starts of this training have left.

    Args:
      output_dir: folder of the training.
      settings: what the user asked for.
      metrics: see Scoring.
      score: takes a folder with one checkpoint, and its step.
      first_step: the step that the training goes on from.
    """
    self._output_dir = output_dir
    self._settings = settings
    self._metrics = metrics
    self._score = score
    self._path = os.path.join(output_dir, "evaluations.json")
    self._temporary = os.path.join(output_dir, "evaluated.tmp")
    self._evaluations: List[Dict[str, Any]] = []
    # At step 0 this is another training than the one that left best weights.
    self._best = _read_best(output_dir) if first_step else None
    if tf.io.gfile.exists(self._path):
      self._evaluations = [
          evaluation for evaluation in read_json(self._path)["evaluations"]
          if evaluation["step"] <= first_step]

  @property
  def every_steps(self) -> int:
    """Steps from one evaluation to the next."""
    return self._settings.every_steps

  def is_over(self) -> bool:
    """Whether the training ends here, as patience has run out."""
    patience = self._settings.patience
    return bool(patience) and self._num_without_gain() >= patience

  def log_end(self) -> None:
    """Says why the training ends."""
    _LOG.info(
        "Early end at step %d: %d evaluations without a better %s. The same "
        "command trains no further; a higher --early_stopping_patience does.",
        self._evaluations[-1]["step"], self._num_without_gain(),
        self._settings.keep_best)

  def is_due(self, step: int, last_step: int) -> bool:
    """Whether the weights of a step are to be evaluated, and are not yet."""
    return (step > 0 and (step % self.every_steps == 0 or step >= last_step)
            and all(step != done["step"] for done in self._evaluations))

  def evaluate(self, step: int, save: Callable[[str], Any]) -> None:
    """Evaluates weights, and keeps them if they are the best.

    Args:
      step: the training step that they are of.
      save: writes them to a checkpoint, given its path.
    """
    self._clear()
    tf.io.gfile.makedirs(self._temporary)
    name = "model.ckpt-{}".format(step)
    path = os.path.join(self._temporary, name)
    save(path)
    checkpoints.write_state(self._temporary, [name])
    scores = self._score(self._temporary, step)
    self._evaluations.append(dict(
        ((key, _as_json(value)) for key, value in sorted(scores.items())
         if key != "global_step"), step=step))
    metric = self._settings.keep_best
    if metric and self._is_best(self._evaluations[-1][metric]):
      self._keep(path, step, self._evaluations[-1][metric])
    # Only now: after a kill it is evaluated again rather than not kept.
    write_text_atomically(self._path, json.dumps(
        {"evaluations": self._evaluations}, indent=2) + "\n")
    self._clear()
    self._log(step)

  def _clear(self) -> None:
    if tf.io.gfile.exists(self._temporary):
      tf.io.gfile.rmtree(self._temporary)

  def _num_without_gain(self) -> int:
    metric = self._settings.keep_best
    return num_without_gain(
        [evaluation.get(metric) for evaluation in self._evaluations],
        self._metrics[metric])

  def _is_best(self, value: Optional[float]) -> bool:
    return _is_better(value, self._best["value"] if self._best else None,
                      self._metrics[self._settings.keep_best])

  def _keep(self, path: str, step: int, value: float) -> None:
    """Moves a checkpoint to the folder of the best, which stays whole."""
    folder, name = best_dir(self._output_dir), os.path.basename(path)
    target = os.path.join(folder, name)
    if checkpoints.newest(folder) == target:
      # Of another training, or of a kill just below: until both files are
      # moved it would be a mixture.
      tf.io.gfile.rmtree(folder)
    tf.io.gfile.makedirs(folder)
    weights_only.move(path, target)
    # From here on they are the best.
    checkpoints.write_state(folder, [name])
    self._best = {"metric": self._settings.keep_best, "value": value,
                  "step": step, "checkpoint": name}
    write_text_atomically(os.path.join(folder, "best.json"),
                          json.dumps(self._best, indent=2) + "\n")
    for other in tf.io.gfile.listdir(folder):
      if (other.startswith("model.ckpt-")
          and not other.startswith(name + ".")):
        tf.io.gfile.remove(os.path.join(folder, other))

  def _log(self, step: int) -> None:
    scores = "  ".join(
        "{} {:.4f}".format(name, value)
        for name, value in self._evaluations[-1].items()
        if name in self._metrics and value is not None)
    state = ""
    if self._best and self._best["step"] == step:
      state = "  (the best so far)"
    elif self._best:
      state = "  (best {}: {:.4f} at step {})".format(
          self._best["metric"], self._best["value"], self._best["step"])
    _LOG.info("evaluation at step %d: %s%s", step, scores, state)


def _as_json(value: Any) -> Optional[float]:
  number = float(value)
  return number if math.isfinite(number) else None


class EvaluationHook(tf.train.SessionRunHook):
  """Evaluates in between of two steps of a training.

  The training's session only gives its weights: its random numbers and its rows
  go on as if nothing had been.
  """

  def __init__(self, evaluator: Evaluator, last_step: int):
    self._evaluator = evaluator
    self._last_step = last_step

  def begin(self) -> None:
    """Makes the ops that write the weights."""
    self._step = tf.train.get_global_step()
    # A list, not {name: variable}, which cannot hold those of several replicas.
    self._saver = tf.train.Saver([
        var for var in tf.global_variables()
        if not weights_only.is_optimizer_state(var.name.split(":")[0])])

  def after_run(self, run_context, run_values) -> None:
    """Evaluates when it is time, and may end the training."""
    del run_values
    session = run_context.session
    step = int(session.run(self._step))
    is_last = step >= self._last_step
    # Who was asked to stop should not be kept waiting: it is evaluated when the
    # training goes on.
    if (not self._evaluator.is_due(step, self._last_step)
        or (run_context.stop_requested and not is_last)):
      return
    try:
      self._evaluator.evaluate(step, lambda path: self._saver.save(
          session, path, write_meta_graph=False, write_state=False))
    except interruption.Interruption:
      # The weights are saved before the run ends; then it is evaluated anew.
      run_context.request_stop()
      return
    if self._evaluator.is_over() and not is_last:
      self._evaluator.log_end()
      run_context.request_stop()
