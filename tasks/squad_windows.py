"""Where the windows over a long document lie, and which is best for a piece.

Plain arithmetic on numbers of word pieces; tasks/squad_data.py fills windows.
"""
import functools
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from multigpu.errors import UserError

# [CLS] question [SEP] window [SEP]
_NUM_MARKERS = 3


class FeatureSettings(NamedTuple):
  """How a question and its document become windows; all in word pieces."""
  max_seq_length: int  # of a whole feature
  doc_stride: int  # from the start of one window to the start of the next
  max_query_length: int  # the rest of a longer question is cut off


class DocSpan(NamedTuple):
  """One window over the word pieces of a document."""
  start: int
  length: int


def check_settings(settings: FeatureSettings) -> None:
  """Raises UserError when no windows can be made with `settings`."""
  if settings.doc_stride < 1:
    raise UserError(
        "--doc_stride=%d, but windows must move on by at least one word piece: "
        "pass --doc_stride=1 or more (usual: 128)." % settings.doc_stride)
  if settings.max_query_length < 1:
    raise UserError(
        "--max_query_length=%d, but a question needs room for at least one "
        "word piece: pass --max_query_length=1 or more (usual: 64)."
        % settings.max_query_length)
  shortest = settings.max_query_length + _NUM_MARKERS + 1
  if settings.max_seq_length < shortest:
    raise UserError(
        "--max_seq_length=%d leaves no room for the document beside a question "
        "of --max_query_length=%d and the %d markers [CLS], [SEP], [SEP]: pass "
        "--max_seq_length=%d or more, or a smaller --max_query_length."
        % (settings.max_seq_length, settings.max_query_length, _NUM_MARKERS,
           shortest))


class WindowPlan(NamedTuple):
  """The windows over one document."""
  spans: Tuple[DocSpan, ...]
  # For each piece the index of the window with the most context; left empty
  # where there is but one window.
  best_spans: Tuple[int, ...]


# Questions on one paragraph need few different plans.
@functools.lru_cache(maxsize=64)
def plan_windows(num_pieces: int, window_length: int,
                 doc_stride: int) -> WindowPlan:
  """Places the windows over a document.

  10 pieces, windows of 6, stride 3: pieces 0-5, 3-8, 6-9. A document of 0
  pieces has one window of length 0.

  Args:
    num_pieces: of the document.
    window_length: the most that a window can hold, at least 1.
    doc_stride: at least 1; see FeatureSettings.
  """
  spans: List[DocSpan] = []
  start = 0
  while True:
    length = min(num_pieces - start, window_length)
    spans.append(DocSpan(start, length))
    if start + length == num_pieces:
      break
    # A stride longer than the window would leave pieces out.
    start += min(length, doc_stride)
  if len(spans) == 1:
    return WindowPlan(tuple(spans), ())
  best_spans, best_scores = [0] * num_pieces, [-1.0] * num_pieces
  for index, span in enumerate(spans):
    scores = _score_context(span.length)
    for position, score in enumerate(scores, span.start):
      if score > best_scores[position]:  # the first of equals stays
        best_spans[position], best_scores[position] = index, score
  return WindowPlan(tuple(spans), tuple(best_spans))


@functools.lru_cache(maxsize=64)
def _score_context(length: int) -> Tuple[float, ...]:
  """Rates each place of a window: pieces on its poorer side, long windows
  first among equals."""
  return tuple(min(left, length - 1 - left) + 0.01 * length
               for left in range(length))


def check_is_max_context(doc_spans: Sequence[Any], cur_span_index: int,
                         position: int) -> bool:
  """Says whether a window is the best one for a piece.

  Args:
    doc_spans: all windows, with `start` and `length`.
    cur_span_index: the window in question.
    position: index of the piece in the document.

  Returns:
    True when no other window scores higher, nor an earlier one as high.
  """
  best_index, best_score = None, -1.0
  for index, span in enumerate(doc_spans):
    offset = position - span.start
    if 0 <= offset < span.length:
      score = _score_context(span.length)[offset]
      if score > best_score:
        best_index, best_score = index, score
  return best_index == cur_span_index


def mark_max_context(plan: WindowPlan, span_index: int,
                     positions: Dict[int, Any]) -> Dict[int, bool]:
  """Returns token_is_max_context of one window.

  Args:
    plan: the windows of the document.
    span_index: the window.
    positions: its keys are the indices in the feature's tokens of the window's
      pieces, in their order (dict.fromkeys of a dict is the quickest).
  """
  if len(plan.spans) == 1:
    return dict.fromkeys(positions, True)
  span = plan.spans[span_index]
  best = plan.best_spans[span.start:span.start + span.length]
  return {position: index == span_index
          for position, index in zip(positions, best)}
