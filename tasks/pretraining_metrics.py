"""The numbers of a pre-training evaluation."""
import collections
from typing import Any, Dict, Iterable

import numpy as np

from multigpu.files import write_text_atomically


# {result of `evaluate`: whether more of it is better}
METRICS = {"masked_lm_accuracy": True, "masked_lm_loss": False,
           "next_sentence_accuracy": True, "next_sentence_loss": False,
           "loss": False}


def evaluate(batches: Iterable[Dict[str, np.ndarray]]
             ) -> "collections.OrderedDict[str, float]":
  """Weighted means over all rows.

  Args:
    batches: predictions of `pretraining_head.make_pretraining_head`.

  Returns:
    loss (the sum of both), masked_lm_accuracy, masked_lm_loss (over masked
    tokens), next_sentence_accuracy, next_sentence_loss (over rows).
  """
  sums = collections.Counter()  # type: Any
  num_rows = 0
  for batch in batches:
    num_rows += len(batch["next_sentence_loss"])
    for name, values in batch.items():
      sums[name] += float(np.sum(values, dtype=np.float64))
  masked = max(sums["masked_lm_weight"], 1.0)
  results = collections.OrderedDict([
      ("masked_lm_accuracy", sums["masked_lm_correct"] / masked),
      ("masked_lm_loss", sums["masked_lm_loss"] / masked),
      ("next_sentence_accuracy", sums["next_sentence_correct"] / num_rows),
      ("next_sentence_loss", sums["next_sentence_loss"] / num_rows)])
  results["loss"] = results["masked_lm_loss"] + results["next_sentence_loss"]
  return results


def write_results(path: str, results: Dict[str, Any]) -> None:
  """Writes sorted `key = value` lines, whole or not at all."""
  write_text_atomically(path, "".join(
      "{} = {}\n".format(key, results[key]) for key in sorted(results)))
