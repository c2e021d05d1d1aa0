"""Documents -> pairs of texts for next-sentence prediction.

Works on the lengths of the sentences alone: a pair is two ranges of pieces.
The draws are Google's, one for one (see tasks/pretraining_masking.py).
"""
import abc
import bisect
import random
from typing import Iterator, NamedTuple, Sequence, Tuple

from tasks.pretraining_masking import draw_below, draw_truncation

# [CLS] a [SEP] b [SEP]
NUM_MARKERS = 3

# How often another document is drawn for a random next sentence, if it is the
# same one again and again. Google's number.
_MAX_TRIES = 10


class InstanceSettings(NamedTuple):
  """What instances look like; names and defaults are those of the flags."""
  max_seq_length: int = 128
  max_predictions_per_seq: int = 20
  dupe_factor: int = 10
  masked_lm_prob: float = 0.15
  short_seq_prob: float = 0.1
  do_whole_word_mask: bool = False


class Sentences(NamedTuple):
  """Where the sentences of one document are.

  Sentence i, first <= i < last, has the pieces bounds[i] .. bounds[i + 1] - 1.
  """
  bounds: Sequence[int]
  first: int
  last: int


class Documents(abc.ABC):
  """The documents that pairs are drawn from."""

  @abc.abstractmethod
  def __len__(self) -> int:
    """Returns the number of documents."""

  @abc.abstractmethod
  def sentences(self, index: int) -> Sentences:
    """Returns the sentences of a document; there is at least one."""


class Pair(NamedTuple):
  """Two texts, already truncated: a range of pieces each."""
  document_a: int
  start_a: int
  end_a: int
  document_b: int
  start_b: int
  end_b: int
  is_random_next: bool


def draw_pairs(documents: Documents, index: int, settings: InstanceSettings,
               rng: random.Random) -> Iterator[Pair]:
  """Cuts a document into pairs.

  Sentences are collected up to the target length; the pair is split at a
  random sentence. Half of the time the second text is taken from a random
  document, and what it stands for is used for the next pair. The caller draws
  from the same `rng` between two pairs (the masks).

  Args:
    documents: all documents of the window.
    index: the document.
    settings: lengths and probabilities.
    rng: the source.

  Returns:
    A generator of pairs.
  """
  max_num_tokens = settings.max_seq_length - NUM_MARKERS
  target = max_num_tokens
  if rng.random() < settings.short_seq_prob:
    # Fine-tuning often has shorter sequences than pre-training.
    target = 2 + draw_below(max_num_tokens - 1, rng)
  bounds, first, last = documents.sentences(index)
  while first < last:
    # The first end of a sentence at which the target is reached.
    chunk_end = bisect.bisect_left(bounds, bounds[first] + target, first + 1,
                                   last)
    middle = first + 1
    if chunk_end - first >= 2:
      middle += draw_below(chunk_end - first - 1, rng)
    text_a = (bounds[first], bounds[middle])
    is_random_next = chunk_end - first == 1 or rng.random() < 0.5
    document_b = index
    if is_random_next:
      document_b, text_b = _draw_next(
          documents, index, target - (text_a[1] - text_a[0]), rng)
      first = middle  # the rest of the chunk comes again
    else:
      text_b = (bounds[middle], bounds[chunk_end])
      first = chunk_end
    front_a, back_a, front_b, back_b = draw_truncation(
        text_a[1] - text_a[0], text_b[1] - text_b[0], max_num_tokens, rng)
    yield Pair(index, text_a[0] + front_a, text_a[1] - back_a,
               document_b, text_b[0] + front_b, text_b[1] - back_b,
               is_random_next)


def _draw_next(documents: Documents, index: int, target: int,
               rng: random.Random) -> Tuple[int, Tuple[int, int]]:
  """Draws a text of about `target` pieces from another document."""
  for _ in range(_MAX_TRIES):
    other = draw_below(len(documents), rng)
    if other != index:
      break
  bounds, first, last = documents.sentences(other)
  start = first + draw_below(last - first, rng)
  end = bisect.bisect_left(bounds, bounds[start] + target, start + 1, last)
  return other, (bounds[start], bounds[end])
