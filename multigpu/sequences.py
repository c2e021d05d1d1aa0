"""Which features of a record go along the sequence of word pieces.

Told by a mark in the record table, not by the number: a row may have as many
labels, or masked pieces, as positions. No TensorFlow in here: processes that
only make records need none.
"""
from typing import Any, List, Mapping, Optional


class SequenceLength(int):
  """The first axis, in a record table, of a feature along the sequence.

  An int that prints, compares and encodes as any other.
  """


def sequence_features(table: Mapping[str, Any]) -> List[str]:
  """Names of the features [seq_length, ...] of a record table."""
  return [name for name, (shape, _) in table.items()
          if shape and isinstance(shape[0], SequenceLength)]


def full_length(table: Mapping[str, Any]) -> Optional[int]:
  """The length of a row with its padding; None without sequence features."""
  lengths = {int(table[name][0][0]) for name in sequence_features(table)}
  if len(lengths) > 1:
    raise ValueError("Sequence features of several lengths: {}.".format(
        sorted(lengths)))
  return lengths.pop() if lengths else None
