"""Batches without the padding that none of their rows needs.

What is equal, and what is not, when a batch is cut to its longest row:

- Real positions do not see padding: attention adds -10000 to its scores, and
  exp(-10000) is 0 in float32. Their outputs are those of the full length, but
  for the order in which numbers are added up (and but for dropout, which draws
  other numbers for another shape).
- The classifier reads position 0, the masked LM reads masked pieces: losses,
  gradients and predictions are those of the full length.
- SQuAD's training loss is a softmax over all positions, padding too, and the
  model gives each padding position a logit of its own. Without computing them
  the loss would be another one: its training is not cut.
- SQuAD's answers are chosen from the logits of real positions; those of
  padding are set to a very low number at any length, see `tasks.squad_head`.

A head says which of this holds for it: `head.PaddingRules`.
"""
from typing import Any, Dict

import tensorflow.compat.v1 as tf

from multigpu import sequences

# Tells real positions from padding, in each record table with sequences.
MASK = "input_mask"
# Positions that pre-training reads; a record may mask one of its padding.
POSITIONS = "masked_lm_positions"
# Lengths are rounded up to a multiple of this. Matrix kernels like it, and
# there are fewer shapes.
LENGTH_MULTIPLE = 8
# XLA compiles each shape by itself.
LENGTH_MULTIPLE_XLA = 64


def row_lengths(input_mask: tf.Tensor) -> tf.Tensor:
  """Positions up to the last real one, int32 [rows].

  A row without any counts as full: its attention is spread over all positions,
  so that without some of them it would be another one.

  Args:
    input_mask: integers [rows, seq_length], 0 = padding. It may have holes.
  """
  seq_length = tf.shape(input_mask)[1]
  ends = tf.reduce_max(
      tf.cast(tf.not_equal(input_mask, 0), tf.int32)
      * tf.range(1, seq_length + 1), axis=1)
  return tf.where(ends > 0, ends, tf.fill(tf.shape(ends), seq_length))


def record_lengths(serialized: tf.Tensor, table: Dict[str, Any]) -> tf.Tensor:
  """`row_lengths` of [rows] records; decodes nothing else of them."""
  shape, dtype = table[MASK]
  parsed = tf.io.parse_example(
      serialized, {MASK: tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))})
  return row_lengths(parsed[MASK])


def cut_batch(features: Dict[str, Any], table: Dict[str, Any],
              length_multiple: int = LENGTH_MULTIPLE) -> Dict[str, Any]:
  """Cuts all sequences of a batch to the longest of its rows.

  No position that the head reads is cut away, even if it is padding.

  Args:
    features: {name: [rows, ...]}.
    table: their record table; tells which of them are sequences.
    length_multiple: the length is rounded up to it, but never beyond the full
      one; 0 = leave the batch as it is.
  """
  names = sequences.sequence_features(table)
  if not names or not length_multiple:
    return features
  longest = tf.reduce_max(row_lengths(features[MASK]))
  if POSITIONS in features:
    longest = tf.maximum(
        longest, tf.cast(tf.reduce_max(features[POSITIONS]), tf.int32) + 1)
  length = tf.minimum(-(-longest // length_multiple) * length_multiple,
                      sequences.full_length(table))
  return dict(features, **{name: features[name][:, :length]
                           for name in names})
