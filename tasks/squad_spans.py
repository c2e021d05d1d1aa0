"""From the logits of one window to its possible spans, best first.

Lives here: all NumPy of the way from logits to answers. Not here: comparing
the windows of a question, and texts (`tasks/squad_answers.py`).
"""
import itertools
from typing import Any, Iterator, List, Sequence, Tuple, Union

import numpy as np

from multigpu.errors import UserError

# (feature, first token, last token, start logit, end logit, their sum)
Span = Tuple[Any, int, int, float, float, float]


def rank_spans(feature: Any, result: Any, n_best_size: int,
               max_answer_length: int) -> Iterator[Span]:
  """The valid spans among the best starts x best ends of one feature.

  Both ends lie in the document, the start in the window that shows most of its
  context.

  Args:
    feature: InputFeatures of the window.
    result: its RawResult, logits as lists or arrays.
    n_best_size: number of starts and number of ends to look at.
    max_answer_length: in word pieces.

  Returns:
    (feature, start, end, start logit, end logit, score), best score first;
    equal ones in descending order of the start's logit, then of the end's.

  Raises:
    UserError: the logits are not numbers.
  """
  if feature.unique_id != result.unique_id:
    raise ValueError("feature %s came with the logits of feature %s" %
                     (feature.unique_id, result.unique_id))
  start_logits = np.asarray(result.start_logits)
  end_logits = np.asarray(result.end_logits)
  if np.isnan(start_logits.max()) or np.isnan(end_logits.max()):
    raise UserError(
        "the logits of feature %s are not numbers (NaN): the checkpoint comes "
        "from a training that diverged; predict with an earlier one." %
        feature.unique_id)
  is_in_document = feature.token_to_orig_map.__contains__
  is_best_window = feature.token_is_max_context.get
  starts = np.array(
      [index for index in get_best_indexes(start_logits, n_best_size)
       if is_in_document(index) and is_best_window(index, False)], np.int64)
  ends = np.array(
      [index for index in get_best_indexes(end_logits, n_best_size)
       if is_in_document(index)], np.int64)
  # 7..7 is a span of length 1: a valid difference is 0 .. maximum - 1.
  difference = ends[np.newaxis, :] - starts[:, np.newaxis]
  rows, columns = np.nonzero(
      (difference >= 0) & (difference < max_answer_length))
  starts, ends = starts[rows], ends[columns]
  # float32 was enough to choose; sums are made of Python's floats.
  start_scores = start_logits[starts].astype(np.float64)
  end_scores = end_logits[ends].astype(np.float64)
  scores = start_scores + end_scores
  order = np.argsort(-scores, kind="stable")
  return zip(itertools.repeat(feature), *(
      column[order].tolist()
      for column in (starts, ends, start_scores, end_scores, scores)))


def get_best_indexes(logits: Union[Sequence[float], np.ndarray],
                     n_best_size: int) -> List[int]:
  """Indexes of the largest logits, descending; equals in order of index."""
  logits = np.asarray(logits)
  if not 0 < n_best_size < len(logits):
    return np.argsort(-logits, kind="stable")[:max(n_best_size, 0)].tolist()
  # Sort only what is not below the n-th best: all its equals stay in.
  bound = np.partition(logits, -n_best_size)[-n_best_size]
  indexes = np.flatnonzero(logits >= bound)
  order = np.argsort(-logits[indexes], kind="stable")[:n_best_size]
  return indexes[order].tolist()
