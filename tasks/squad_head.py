"""The span head: start and end logits from the last layer, and their loss."""
from typing import Any, Dict, Tuple

import tensorflow.compat.v1 as tf

import modeling
from multigpu.head import (HeadOutput, PaddingRules, WeightedMean,
                           declare_padding)

# Prediction of a position without a word piece. The model's own logit there
# depends on how far the row is padded, and can only take the place of a real
# position among the n best.
PADDING_LOGIT = -10000.0


def span_logits(model: modeling.BertModel) -> Tuple[tf.Tensor, tf.Tensor]:
  """Returns (start logits, end logits), float32 [batch_size, seq_length].

  One linear layer of width 2 on each token (Devlin et al. 2018, section 4.2).
  """
  hidden = model.get_sequence_output()
  batch_size, seq_length, width = modeling.get_shape_list(
      hidden, expected_rank=3)
  weights = tf.get_variable(
      "cls/squad/output_weights", [2, width],
      initializer=tf.truncated_normal_initializer(stddev=0.02))
  bias = tf.get_variable("cls/squad/output_bias", [2],
                         initializer=tf.zeros_initializer())
  logits = tf.matmul(tf.reshape(hidden, [-1, width]), weights,
                     transpose_b=True)
  logits = tf.reshape(tf.nn.bias_add(logits, bias), [batch_size, seq_length, 2])
  start_logits, end_logits = tf.unstack(logits, axis=2)
  return start_logits, end_logits


def span_losses(start_logits: tf.Tensor, end_logits: tf.Tensor,
                features: Dict[str, Any]) -> tf.Tensor:
  """Mean cross-entropy of start and end, float32 [batch_size]."""
  losses = [
      tf.nn.sparse_softmax_cross_entropy_with_logits(
          logits=logits, labels=features[name])
      for logits, name in ((start_logits, "start_positions"),
                           (end_logits, "end_positions"))]
  return sum(losses) / 2.0


# The loss is a softmax over all positions, padding too, as Google's is.
@declare_padding(PaddingRules(
    cut_training=False,
    fill={"start_logits": PADDING_LOGIT, "end_logits": PADDING_LOGIT}))
def squad_head(model: modeling.BertModel, features: Dict[str, Any],
               mode: str) -> HeadOutput:
  """The head of this task, see `multigpu.head`.

  Predictions: unique_ids [batch_size], start_logits and end_logits
  [batch_size, seq_length], where padding has PADDING_LOGIT. In training it
  keeps the model's own logits.
  """
  start_logits, end_logits = span_logits(model)
  loss_terms = []
  if mode == tf.estimator.ModeKeys.TRAIN:
    losses = span_losses(start_logits, end_logits, features)
    loss_terms.append(WeightedMean(
        tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32)))
  else:
    start_logits, end_logits = (
        _mask_padding(logits, features["input_mask"])
        for logits in (start_logits, end_logits))
  return HeadOutput(
      predictions={"unique_ids": features["unique_ids"],
                   "start_logits": start_logits, "end_logits": end_logits},
      loss_terms=loss_terms)


def _mask_padding(logits: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
  """Replaces the logits of padding; both [batch_size, seq_length]."""
  # Not a sum: real logits stay as they are to the last bit.
  return tf.where(tf.not_equal(input_mask, 0), logits,
                  PADDING_LOGIT * tf.ones_like(logits))
