"""The random choices within one instance: truncation and masked positions.

Nothing in here knows vocabularies or files. All draws are those that Google's
create_pretraining_data.py makes from its `random.Random`, one for one, so that
a seed gives the same instances. They are written out over `getrandbits` and
`random` instead of `randint` and `shuffle`: a good deal faster (these loops
are most of the program's time), and the same in every version of Python.
"""
import itertools
import random
from typing import Any, List, Tuple

# Kinds of pieces, one byte each.
SPECIAL = 0  # [CLS], [SEP]: never masked
WORD = 1
INNER = 2  # masked together with the piece before it (whole-word masking)

# What a masked piece is replaced by; a number from 0 is a word of the
# vocabulary.
USE_MASK = -1
KEEP = -2


def draw_below(limit: int, rng: random.Random) -> int:
  """Draws from 0 .. limit - 1, as `rng.randrange(limit)` does."""
  bits = limit.bit_length()
  value = rng.getrandbits(bits)
  while value >= limit:
    value = rng.getrandbits(bits)
  return value


def shuffle(items: Any, rng: random.Random) -> None:
  """Shuffles a mutable sequence in place, as `rng.shuffle(items)` does."""
  getrandbits = rng.getrandbits
  high = len(items) - 1
  while high > 0:
    # From the end: item i changes places with one of the items 0 .. i. One
    # inner loop for all i whose draws take the same number of bits.
    bits = (high + 1).bit_length()
    low = (1 << bits - 1) - 1
    for i in range(high, low - 1, -1):
      j = getrandbits(bits)
      while j > i:
        j = getrandbits(bits)
      items[i], items[j] = items[j], items[i]
    high = low - 1


def draw_truncation(length_a: int, length_b: int, max_num_tokens: int,
                    rng: random.Random) -> Tuple[int, int, int, int]:
  """Draws what a pair loses until it has `max_num_tokens` pieces.

  The longer one (b when equal) loses one piece after the other, each from its
  front or its back.

  Returns:
    Number of pieces that go from a's front, a's back, b's front, b's back.
  """
  draw = rng.random
  front_a = back_a = front_b = back_b = 0
  for _ in range(length_a + length_b - max_num_tokens):
    if length_a > length_b:
      length_a -= 1
      if draw() < 0.5:
        front_a += 1
      else:
        back_a += 1
    else:
      length_b -= 1
      if draw() < 0.5:
        front_b += 1
      else:
        back_b += 1
  return front_a, back_a, front_b, back_b


def count_predictions(num_tokens: int, masked_lm_prob: float,
                      max_predictions_per_seq: int) -> int:
  """Pieces to mask in a sequence of `num_tokens` ([CLS], [SEP] included)."""
  wanted = int(round(num_tokens * masked_lm_prob))
  return min(max_predictions_per_seq, max(1, wanted))


def draw_predictions(kinds: bytes, num_to_predict: int, num_words: int,
                     rng: random.Random) -> List[Tuple[int, int]]:
  """Draws which pieces are to be predicted and what stands in their place.

  Args:
    kinds: SPECIAL, WORD or INNER for each piece of the sequence.
    num_to_predict: how many pieces; with INNER ones it may become fewer.
    num_words: size of the vocabulary that random words come from.
    rng: the source.

  Returns:
    (position, USE_MASK or KEEP or number of the word), by position.
  """
  if INNER in kinds:
    positions = _pick_whole_words(kinds, num_to_predict, rng)
  else:
    positions = list(itertools.compress(range(len(kinds)), kinds))
    shuffle(positions, rng)
    del positions[num_to_predict:]
  predictions = []
  draw = rng.random
  for position in positions:
    # 80 % [MASK], 10 % the piece itself, 10 % a random one (BERT, 3.1).
    if draw() < 0.8:
      replacement = USE_MASK
    elif draw() < 0.5:
      replacement = KEEP
    else:
      replacement = draw_below(num_words, rng)
    predictions.append((position, replacement))
  predictions.sort()
  return predictions


def _pick_whole_words(kinds: bytes, num_to_predict: int,
                      rng: random.Random) -> List[int]:
  """Picks words in random order; one that does not fit any more is left out.

  An INNER piece at the front of the second text (its beginning was cut off)
  goes with the last word of the first, as in Google's program.
  """
  words: List[List[int]] = []
  for position, kind in enumerate(kinds):
    if kind == INNER and words:
      words[-1].append(position)
    elif kind != SPECIAL:
      words.append([position])
  shuffle(words, rng)
  positions: List[int] = []
  for word in words:
    if len(positions) + len(word) <= num_to_predict:
      positions += word
  return positions
