"""Classification, regression and multi-label heads on the pooled output."""
from typing import Any, Dict, Tuple

import tensorflow.compat.v1 as tf

import modeling
from multigpu.head import (HeadOutput, PaddingRules, WeightedMean,
                           declare_padding)
from tasks.classifier_data import CLASSES, MULTI_LABEL, REGRESSION

# Dropout of the pooled output in training, whatever the configuration says;
# Google's number.
HEAD_DROPOUT = 0.1


def classifier_logits(model: modeling.BertModel, num_labels: int,
                      dropout_prob: float) -> tf.Tensor:
  """One linear layer on the pooled output; float32 [batch_size, num_labels]."""
  pooled = model.get_pooled_output()
  weights = tf.get_variable(
      "output_weights", [num_labels, pooled.shape.as_list()[-1]],
      initializer=tf.truncated_normal_initializer(stddev=0.02))
  bias = tf.get_variable("output_bias", [num_labels],
                         initializer=tf.zeros_initializer())
  pooled = modeling.dropout(pooled, dropout_prob)
  return tf.nn.bias_add(tf.matmul(pooled, weights, transpose_b=True), bias)


def losses_and_probabilities(logits: tf.Tensor, labels: tf.Tensor,
                             kind: str) -> Tuple[tf.Tensor, tf.Tensor]:
  """Returns (losses [batch_size], probabilities [batch_size, num_labels]).

  Args:
    logits: float32 [batch_size, num_labels].
    labels: "classes": int32 [batch_size]; "regression": float32 [batch_size];
      "multi_label": float32 [batch_size, num_labels], 0 or 1.
    kind: of the labels, see `tasks.classifier_data`. The probabilities of a
      regression are the predicted values, its loss the squared error; the loss
      of several labels is the mean over the labels.
  """
  if kind == REGRESSION:
    return tf.square(logits[:, 0] - labels), logits
  if kind == MULTI_LABEL:
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        logits=logits, labels=labels)
    return tf.reduce_mean(losses, axis=-1), tf.sigmoid(logits)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      logits=logits, labels=labels)
  return losses, tf.nn.softmax(logits)


def make_classifier_head(num_labels: int, kind: str = CLASSES,
                         dropout_prob: float = HEAD_DROPOUT):
  """Returns the head of this task, see `multigpu.head`.

  Predictions: probabilities [batch_size, num_labels], losses [batch_size] and
  the label_ids of the features.
  """
  # Only the first position is read.
  @declare_padding(PaddingRules(cut_training=True))
  def classifier_head(model: modeling.BertModel, features: Dict[str, Any],
                      mode: str) -> HeadOutput:
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    logits = classifier_logits(
        model, num_labels, dropout_prob if is_training else 0.0)
    losses, probabilities = losses_and_probabilities(
        logits, features["label_ids"], kind)
    return HeadOutput(
        {"probabilities": probabilities, "losses": losses,
         "label_ids": features["label_ids"]},
        [WeightedMean(tf.reduce_sum(losses),
                      tf.cast(tf.size(losses), tf.float32))])

  return classifier_head
