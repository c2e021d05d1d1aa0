"""Masked-LM and next-sentence heads of pre-training (Devlin et al. 2018, 3.1).

The output embedding is the input embedding: only a bias is added.
"""
from typing import Any, Dict, Tuple

import tensorflow.compat.v1 as tf

import modeling
from multigpu.head import (HeadOutput, PaddingRules, WeightedMean,
                           declare_padding)

# Keeps a batch without any masked token from a division by 0; Google's number.
WEIGHT_EPSILON = 1e-5

Losses = Tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def gather_indexes(sequence_tensor: tf.Tensor,
                   positions: tf.Tensor) -> tf.Tensor:
  """Picks positions of each row.

  Args:
    sequence_tensor: float32 [batch_size, seq_length, width].
    positions: int32 [batch_size, num_positions].

  Returns:
    float32 [batch_size * num_positions, width].
  """
  batch_size, seq_length, width = modeling.get_shape_list(
      sequence_tensor, expected_rank=3)
  # Row 2, position 5 of sequences of 128 is line 2 * 128 + 5 of the matrix.
  row_starts = tf.reshape(tf.range(batch_size) * seq_length, [-1, 1])
  return tf.gather(tf.reshape(sequence_tensor, [-1, width]),
                   tf.reshape(positions + row_starts, [-1]))


def get_masked_lm_output(bert_config, input_tensor, output_weights, positions,
                         label_ids, label_weights) -> Losses:
  """Predicts the masked tokens.

  Args:
    bert_config: `modeling.BertConfig`.
    input_tensor: float32 [batch_size, seq_length, hidden_size].
    output_weights: the word embeddings [vocab_size, hidden_size].
    positions: int32 [batch_size, max_predictions_per_seq].
    label_ids: int32, the same shape: the original tokens.
    label_weights: float32, the same shape: 1 = masked, 0 = padding.

  Returns:
    (loss of this batch, losses [batch_size * max_predictions_per_seq],
    log probabilities [batch_size * max_predictions_per_seq, vocab_size]).
  """
  # The few masked positions are picked before the projection onto the
  # vocabulary, which is most of the work.
  picked = gather_indexes(input_tensor, positions)
  with tf.variable_scope("cls/predictions"):
    with tf.variable_scope("transform"):
      hidden = modeling.layer_norm(modeling.dense(
          picked, bert_config.hidden_size, bert_config.initializer_range,
          modeling.get_activation(bert_config.hidden_act), "dense"))
    bias = tf.get_variable("output_bias", [bert_config.vocab_size],
                           initializer=tf.zeros_initializer())
    logits = tf.nn.bias_add(
        tf.matmul(hidden, output_weights, transpose_b=True), bias)
  weights = tf.reshape(label_weights, [-1])
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      logits=logits, labels=tf.reshape(label_ids, [-1]))
  loss = (tf.reduce_sum(weights * losses)
          / (tf.reduce_sum(weights) + WEIGHT_EPSILON))
  return loss, losses, tf.nn.log_softmax(logits)


def get_next_sentence_output(bert_config, input_tensor, labels) -> Losses:
  """Predicts whether the second text is a random one.

  Args:
    bert_config: `modeling.BertConfig`.
    input_tensor: pooled output, float32 [batch_size, hidden_size].
    labels: int32 [batch_size] or [batch_size, 1]; 1 = random.

  Returns:
    (mean loss, losses [batch_size], log probabilities [batch_size, 2]).
  """
  with tf.variable_scope("cls/seq_relationship"):
    weights = tf.get_variable(
        "output_weights", [2, bert_config.hidden_size],
        initializer=modeling.create_initializer(bert_config.initializer_range))
    bias = tf.get_variable("output_bias", [2],
                           initializer=tf.zeros_initializer())
    logits = tf.nn.bias_add(
        tf.matmul(input_tensor, weights, transpose_b=True), bias)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      logits=logits, labels=tf.reshape(labels, [-1]))
  return tf.reduce_mean(losses), losses, tf.nn.log_softmax(logits)


def make_pretraining_head(bert_config: modeling.BertConfig):
  """Returns the head of this task, see `multigpu.head`.

  Predictions, float32 [batch_size] each: masked_lm_loss (sum of the row),
  masked_lm_weight (number of masked tokens), masked_lm_correct (how many of
  them were found), next_sentence_loss, next_sentence_correct.
  """
  # Only the first position and masked pieces are read.
  @declare_padding(PaddingRules(cut_training=True))
  def pretraining_head(model: modeling.BertModel, features: Dict[str, Any],
                       mode: str) -> HeadOutput:
    del mode
    ids = features["masked_lm_ids"]
    weights = features["masked_lm_weights"]
    labels = tf.reshape(features["next_sentence_labels"], [-1])
    _, masked_lm_losses, masked_lm_log_probs = get_masked_lm_output(
        bert_config, model.get_sequence_output(), model.get_embedding_table(),
        features["masked_lm_positions"], ids, weights)
    _, next_losses, next_log_probs = get_next_sentence_output(
        bert_config, model.get_pooled_output(), labels)

    shape = modeling.get_shape_list(ids)
    found = tf.reshape(
        tf.argmax(masked_lm_log_probs, -1, output_type=tf.int32), shape)
    masked_lm_loss = tf.reduce_sum(
        weights * tf.reshape(masked_lm_losses, shape), axis=-1)
    next_found = tf.argmax(next_log_probs, -1, output_type=tf.int32)
    predictions = {
        "masked_lm_loss": masked_lm_loss,
        "masked_lm_weight": tf.reduce_sum(weights, axis=-1),
        "masked_lm_correct": tf.reduce_sum(
            weights * tf.cast(tf.equal(found, ids), tf.float32), axis=-1),
        "next_sentence_loss": next_losses,
        "next_sentence_correct": tf.cast(
            tf.equal(next_found, labels), tf.float32)}

    def over_tokens(name: str) -> WeightedMean:
      return WeightedMean(tf.reduce_sum(predictions[name]),
                          tf.reduce_sum(weights), WEIGHT_EPSILON)

    def over_rows(name: str) -> WeightedMean:
      return WeightedMean(tf.reduce_sum(predictions[name]),
                          tf.cast(tf.size(labels), tf.float32))

    loss_terms = {"masked_lm_loss": over_tokens("masked_lm_loss"),
                  "next_sentence_loss": over_rows("next_sentence_loss")}
    return HeadOutput(predictions, list(loss_terms.values()), dict(
        loss_terms,
        masked_lm_accuracy=over_tokens("masked_lm_correct"),
        next_sentence_accuracy=over_rows("next_sentence_correct")))

  return pretraining_head
