"""Scores of classification tasks, and the result files.

Lives here: metrics on the predictions of all rows, eval_results.txt,
eval_results.json, test_results.tsv. Not here: how the predictions are gathered
from the replicas.

Each task has the metrics of GLUE (Wang et al. 2018,
https://arxiv.org/abs/1804.07461, table 1), computed by scikit-learn and SciPy.
The files are those of google-research/bert with lines added.
"""
import collections
import json
import logging
import math
import os
from typing import (Any, Callable, Dict, Iterable, List, Mapping, NamedTuple,
                    Optional, Tuple)

import numpy as np
from scipy import stats
from sklearn import metrics

from multigpu.errors import UserError
from multigpu.files import write_text_atomically
from tasks.classifier_data import CLASSES, MULTI_LABEL, REGRESSION

_LOGGER = logging.getLogger(__name__)

# (what is right, what was predicted), one row each -> [(key, score)]
Metric = Callable[[np.ndarray, np.ndarray], List[Tuple[str, float]]]


class Losses(NamedTuple):
  """The two losses of eval_results.txt."""
  eval_loss: np.float32  # Mean over the rows.
  loss: np.float32  # Mean over the batches of their means.


def mean_losses(row_losses: Any, batch_size: int) -> Losses:
  """Computes both losses that google-research/bert reports.

  They differ where the last batch is smaller: 11 rows in batches of 8 are two
  batches, and `loss` counts the 3 rows of the second as much as the 8.

  Args:
    row_losses: loss of each row once, in the order of the rows.
    batch_size: rows per batch of one device (--eval_batch_size), so that the
      result does not depend on the number of replicas.

  Raises:
    UserError: a loss is not a number.
  """
  rows = np.asarray(row_losses, np.float64)
  if rows.ndim != 1 or not rows.size:
    raise ValueError("wanted a loss per row, got the shape %s" % (rows.shape,))
  _check_numbers(rows, "losses")
  batches = [rows[start:start + batch_size].mean()
             for start in range(0, len(rows), batch_size)]
  return Losses(np.float32(rows.mean()), np.float32(np.mean(batches)))


def score(task_name: str, label_kind: str, label_ids: Any,
          outputs: Any) -> "collections.OrderedDict[str, float]":
  """Scores the predictions of all rows.

  Args:
    task_name: as of --task_name, in lower case; a name that is not in
      TASK_METRICS gets the metrics of its kind of label.
    label_kind: CLASSES, REGRESSION or MULTI_LABEL.
    label_ids: class indexes [rows]; numbers [rows]; 0.0 or 1.0
      [rows, num_labels].
    outputs: probabilities (or, with classes, logits) [rows, num_labels];
      numbers [rows] or [rows, 1].

  Returns:
    {"eval_...": score}, the scores in 0..1 (correlations: -1..1).

  Raises:
    UserError: the outputs are not numbers.
  """
  right, outputs = np.asarray(label_ids), np.asarray(outputs)
  if not len(right) or len(right) != len(outputs):
    raise ValueError("%d labels, %d predictions" % (len(right), len(outputs)))
  _check_numbers(outputs, "predictions")
  if label_kind == CLASSES:
    # The first of equals, as tf.argmax.
    right, predicted = right.reshape(-1), outputs.argmax(axis=-1)
  elif label_kind == REGRESSION:
    right, predicted = right.reshape(-1), outputs.reshape(-1)
  else:
    predicted = predict_labels(outputs).astype(int)
    right = right.astype(int)
  metric = TASK_METRICS.get(task_name) or _KIND_METRICS[label_kind]
  return collections.OrderedDict(
      ("eval_" + key, float(value)) for key, value in metric(right, predicted))


def list_metrics(task_name: str, label_kind: str) -> Dict[str, bool]:
  """What an evaluation measures: {name: whether more of it is better}."""
  # The names are those that the functions give, so they are asked.
  some = (np.eye(2, dtype=int) if label_kind == MULTI_LABEL
          else np.array([0, 1]))
  metric = TASK_METRICS.get(task_name) or _KIND_METRICS[label_kind]
  names = {"eval_" + key: True for key, _ in metric(some, some)}
  return dict(names, eval_loss=False, loss=False)


def predict_labels(probabilities: np.ndarray) -> np.ndarray:
  """Which labels an example gets: those of probability over 0.5 (bool)."""
  return np.asarray(probabilities) > 0.5


def _accuracy(right, predicted):
  return [("accuracy", metrics.accuracy_score(right, predicted))]


def _accuracy_and_f1(right, predicted):
  """F1 of the class 1 ("1": the sentences mean the same)."""
  return _accuracy(right, predicted) + [
      ("f1", metrics.f1_score(right, predicted, zero_division=0))]


def _accuracy_and_macro_f1(right, predicted):
  """F1 is averaged over the classes that occur in either array."""
  return _accuracy(right, predicted) + [
      ("macro_f1", metrics.f1_score(right, predicted, average="macro",
                                    zero_division=0))]


def _matthews(right, predicted):
  return _accuracy(right, predicted) + [
      ("matthews", metrics.matthews_corrcoef(right, predicted))]


def _correlations(right, predicted):
  """Not defined (NaN) where either side has less than two values."""
  if min(len(np.unique(right)), len(np.unique(predicted))) < 2:
    _LOGGER.warning(
        "All %d labels or all predictions are the same number: a correlation "
        "is not defined.", len(right))
    return [("pearson", math.nan), ("spearman", math.nan)]
  return [("pearson", stats.pearsonr(right, predicted)[0]),
          ("spearman", stats.spearmanr(right, predicted)[0])]


def _multi_label(right, predicted):
  """Accuracy: the share of examples with exactly the right labels."""
  def f1(rights, predictions):
    return metrics.f1_score(rights, predictions, zero_division=0)

  # Label by label: of a single column scikit-learn would average the F1 of the
  # label with that of its absence.
  by_label = [f1(*columns) for columns in zip(right.T, predicted.T)]
  return [("accuracy", np.mean(np.all(right == predicted, axis=1))),
          ("macro_f1", np.mean(by_label)),
          ("micro_f1", f1(right.reshape(-1), predicted.reshape(-1)))]


_KIND_METRICS: Dict[str, Metric] = {
    CLASSES: _accuracy_and_macro_f1, REGRESSION: _correlations,
    MULTI_LABEL: _multi_label}

# --task_name, in lower case. The user's own data: by the kind of label.
TASK_METRICS: Dict[str, Metric] = {
    "cola": _matthews, "mnli": _accuracy, "mnli-mm": _accuracy,
    "mrpc": _accuracy_and_f1, "qnli": _accuracy, "qqp": _accuracy_and_f1,
    "rte": _accuracy, "sst-2": _accuracy, "sts-b": _correlations,
    "wnli": _accuracy, "xnli": _accuracy}


def collect_results(scores: Mapping[str, float], losses: Losses,
                    global_step: int) -> Dict[str, Any]:
  """Joins scores and losses to what write_eval_results takes."""
  results: Dict[str, Any] = dict(scores)
  results.update(eval_loss=losses.eval_loss, loss=losses.loss,
                 global_step=global_step)
  return results


def format_eval_results(results: Mapping[str, Any]) -> str:
  """Returns the lines `key = value` of eval_results.txt, sorted by key.

  Numbers with a fraction have the digits that a float32 needs, as in the files
  of google-research/bert.
  """
  return "".join("%s = %s\n" % (key, _format_number(results[key]))
                 for key in sorted(results))


def _format_number(value: Any) -> str:
  if isinstance(value, (int, np.integer)):
    return str(int(value))
  return str(np.float32(value))


def write_eval_results(output_dir: str, results: Mapping[str, Any]) -> None:
  """Writes eval_results.txt and eval_results.json (null for NaN)."""
  write_text_atomically(os.path.join(output_dir, "eval_results.txt"),
                        format_eval_results(results))
  values = collections.OrderedDict(
      (key, _as_json(results[key])) for key in sorted(results))
  write_text_atomically(os.path.join(output_dir, "eval_results.json"),
                        json.dumps(values, indent=4) + "\n")


def _as_json(value: Any) -> Optional[float]:
  if isinstance(value, (int, np.integer)):
    return int(value)
  # A float32 as its own few digits, not as those of the nearest double.
  number = float(str(value)) if isinstance(value, np.float32) else float(value)
  return number if math.isfinite(number) else None


def write_test_results(path: str, batches: Iterable[Any]) -> int:
  """Writes test_results.tsv: a line per row, without header.

  Args:
    path: the file.
    batches: outputs [rows, num_outputs] in the order of the rows: probabilities
      of the labels, or the number of a regression (also [rows]).

  Returns:
    The number of lines.

  Raises:
    UserError: the outputs are not numbers, or the file cannot be written.
  """
  lines = []
  for batch in batches:
    outputs = np.asarray(batch, np.float32)
    _check_numbers(outputs, "predictions")
    lines += ["\t".join(map(str, row)) + "\n"
              for row in outputs.reshape(len(outputs), -1)]
  write_text_atomically(path, "".join(lines))
  return len(lines)


def _check_numbers(values: np.ndarray, what: str) -> None:
  is_bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
  if is_bad.any():
    raise UserError(
        "the %s of %d of %d examples are not numbers (NaN or infinite), first "
        "that of row %d: the checkpoint comes from a training that diverged; "
        "take an earlier one."
        % (what, is_bad.sum(), len(is_bad), int(is_bad.argmax()) + 1))
