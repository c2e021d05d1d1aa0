"""The one model_fn: features -> BertModel -> head -> EstimatorSpec.

A task brings only its head, see `multigpu.head`.
"""
import zlib
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
import optimization
from multigpu import checkpoints
from multigpu.head import Head, WeightedMean


class ModelSettings(NamedTuple):
  """What the model_fn needs to know; one set for all tasks."""
  bert_config: modeling.BertConfig
  init_checkpoint: Optional[str] = None
  learning_rate: float = 5e-5
  num_train_steps: Optional[int] = None
  num_warmup_steps: Optional[int] = None
  use_one_hot_embeddings: bool = False
  seed: int = 0


def build_model_fn(head: Head, settings: ModelSettings) -> Callable[..., Any]:
  """Returns a `model_fn` for tf.estimator.Estimator and our own loops.

  Args:
    head: the task.
    settings: the model and its training.

  Returns:
    `model_fn(features, labels, mode, params)`; features has input_ids,
    input_mask, segment_ids (int32 [batch_size, seq_length]) and what the head
    needs. Labels travel in features, as in Google's scripts.
  """
  def model_fn(features, labels, mode, params):
    del labels, params
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    with tf.variable_scope(tf.get_variable_scope(),
                           custom_getter=_seeded_by_name(settings.seed)):
      model = modeling.BertModel(
          config=settings.bert_config,
          is_training=is_training,
          input_ids=features["input_ids"],
          input_mask=features["input_mask"],
          token_type_ids=features["segment_ids"],
          use_one_hot_embeddings=settings.use_one_hot_embeddings)
      output = head(model, features, mode)
    if settings.init_checkpoint:
      checkpoints.initialize_from(settings.init_checkpoint,
                                  tf.trainable_variables())
    loss = _global_loss(output.loss_terms) if output.loss_terms else None
    train_op = None
    if is_training:
      _add_curves(output.curves)
      train_op = optimization.create_optimizer(
          loss, settings.learning_rate, settings.num_train_steps,
          settings.num_warmup_steps, False)
    return tf.estimator.EstimatorSpec(
        mode=mode,
        predictions=output.predictions,
        loss=loss,
        train_op=train_op,
        scaffold=tf.train.Scaffold())

  return model_fn


def _global_loss(terms: Sequence[WeightedMean]) -> Any:
  """This replica's share of the loss of the global batch.

  The mean of the shares over the replicas is the sum of the terms, each with
  its weights added up over all replicas. So is the gradient.
  """
  context = tf.distribute.get_replica_context()
  num_replicas = context.strategy.num_replicas_in_sync
  loss = 0.0
  for term in terms:
    weight = term.weight
    if num_replicas > 1:
      # A constant for the gradient: weights do not depend on variables.
      weight = context.merge_call(
          lambda strategy, value: strategy.extended.reduce_to(
              tf.distribute.ReduceOp.SUM, value, destinations=value),
          args=(tf.stop_gradient(weight),))
    loss += num_replicas * term.total / (weight + term.epsilon)
  return loss


def _add_curves(curves: Mapping[str, WeightedMean]) -> None:
  """Adds a summary of each mean over the rows of the global batch.

  Nothing of it is computed in the steps that write no summary.
  """
  context = tf.distribute.get_replica_context()
  for name, curve in curves.items():
    # To the CPU, as only one replica writes: an all-reduce would wait for the
    # others, which do not ask for its result.
    total, weight = context.merge_call(
        lambda strategy, *values: [
            strategy.extended.reduce_to(
                tf.distribute.ReduceOp.SUM, value, destinations="/cpu:0")
            for value in values],
        args=(curve.total, curve.weight))
    tf.summary.scalar(name, total / (weight + curve.epsilon))


def _seeded_by_name(seed: int) -> Callable[..., Any]:
  """A variable getter that seeds random initializers by the variable's name.

  TensorFlow's own seeds count the operations of the graph, so another number
  of replicas would start from other weights.
  """
  # TensorFlow passes the first two by name as well: they must be called so.
  def seeded_getter(getter, name, *args, **kwargs):
    initializer = kwargs.get("initializer")
    if isinstance(initializer, tf.truncated_normal_initializer):
      config = initializer.get_config()
      config["seed"] = (zlib.crc32(name.encode("utf-8")) + seed) % (2 ** 31)
      kwargs["initializer"] = type(initializer).from_config(config)
    return getter(name, *args, **kwargs)

  return seeded_getter
