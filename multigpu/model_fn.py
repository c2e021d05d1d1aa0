"""The one model_fn: features -> BertModel -> head -> EstimatorSpec.

A task brings only its head, see `multigpu.head`.
"""
import zlib
from typing import (Any, Callable, Dict, List, Mapping, NamedTuple, Optional,
                    Sequence)

import tensorflow.compat.v1 as tf

import modeling
import optimization
from multigpu import accumulation
from multigpu import hooks
from multigpu import initial_checkpoint
from multigpu import session_options
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
  # Micro-batches of a replica's batch, see `multigpu.accumulation`.
  accumulation_steps: int = 1
  precision: str = session_options.FP32
  # Packs in which gradients are reduced over the replicas.
  num_packs: int = optimization.DEFAULT_NUM_PACKS
  optimizer: str = optimization.ADAMW


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
    predictions = loss = train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
      loss_scale = (optimization.DynamicLossScale()
                    if settings.precision == session_options.FP16
                    else None)
      loss, curves = _training_sums(
          build, features, settings.accumulation_steps, loss_scale)
      with tf.control_dependencies(_add_curves(curves)):
        loss = tf.identity(loss)
    else:
      output = build(features, mode)
      predictions = output.predictions
      if output.loss_terms:
        loss = _loss(output.loss_terms, _global_weights(output.loss_terms))
    if settings.init_checkpoint:
      initial_checkpoint.initialize_from(settings.init_checkpoint,
                                         tf.trainable_variables())
    if mode == tf.estimator.ModeKeys.TRAIN:
      train_op = optimization.create_optimizer(
          loss, settings.learning_rate, settings.num_train_steps,
          settings.num_warmup_steps, False, num_packs=settings.num_packs,
          loss_scale=loss_scale, optimizer=settings.optimizer)
    return tf.estimator.EstimatorSpec(
        mode=mode,
        predictions=predictions,
        loss=loss,
        train_op=train_op,
        scaffold=tf.train.Scaffold())

  def build(features, mode, getter=None, reuse=None):
    """BERT and the head on some rows."""
    seeded = _seeded_by_name(settings.seed)
    # Scope objects, not names: each call gives the variables equal names.
    with tf.variable_scope(tf.get_variable_scope(), custom_getter=seeded), \
        tf.variable_scope(tf.get_variable_scope(), custom_getter=getter,
                          reuse=reuse):
      model = modeling.BertModel(
          config=settings.bert_config,
          is_training=mode == tf.estimator.ModeKeys.TRAIN,
          input_ids=features["input_ids"],
          input_mask=features["input_mask"],
          token_type_ids=features["segment_ids"],
          use_one_hot_embeddings=settings.use_one_hot_embeddings)
      return head(model, features, mode)

  return model_fn


def _training_sums(build, features, accumulation_steps, loss_scale):
  """This replica's loss, and its curves: {name: WeightedMean}."""
  mode = tf.estimator.ModeKeys.TRAIN
  variables: Dict[str, Any] = {}
  whole = build(features, mode, accumulation.recording_getter(variables))
  weights = _global_weights(whole.loss_terms)
  if accumulation_steps == 1:
    return _loss(whole.loss_terms, weights), whole.curves
  # Of the whole batch only its weights are ever computed: they depend on no
  # variable.
  def compute(rows, getter):
    output = build(rows, mode, getter, reuse=True)
    return accumulation.Sums(_loss(output.loss_terms, weights), [
        (mean.total, mean.weight) for mean in output.curves.values()])

  loss, sums = accumulation.accumulate(
      compute, features, variables, len(whole.curves), accumulation_steps,
      1.0 if loss_scale is None else loss_scale.value)
  return loss, {
      name: WeightedMean(total, weight, mean.epsilon)
      for (name, mean), (total, weight) in zip(whole.curves.items(), sums)}


def _global_weights(terms: Sequence[WeightedMean]) -> List[Any]:
  """The sum of weights of each term over all replicas, and its epsilon."""
  context = tf.distribute.get_replica_context()
  weights = []
  for term in terms:
    # A constant for the gradient: weights do not depend on variables.
    weight = tf.stop_gradient(term.weight)
    if context.strategy.num_replicas_in_sync > 1:
      weight = context.merge_call(
          lambda strategy, value: strategy.extended.reduce_to(
              tf.distribute.ReduceOp.SUM, value, destinations=value),
          args=(weight,))
    weights.append(weight + term.epsilon)
  return weights


def _loss(terms: Sequence[WeightedMean], global_weights: Sequence[Any]) -> Any:
  """These rows' share of the loss of the global batch.

  The mean of the replicas' shares is the sum of the terms, each with its
  weights added up over all replicas. So is the gradient.
  """
  num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
  return num_replicas * sum(
      term.total / weight for term, weight in zip(terms, global_weights))


def _add_curves(curves: Mapping[str, WeightedMean]) -> List[Any]:
  """Adds a summary of each mean over the rows of the global batch.

  On one host nothing of it is computed in the steps that write no summary.

  Returns:
    What must be computed in each step: on several hosts the sums. Only the
    chief writes summaries, and would wait for the others.
  """
  context = tf.distribute.get_replica_context()
  if _spans_hosts(context.strategy):
    return _add_curves_of_hosts(curves, context)
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
  return []


def _add_curves_of_hosts(curves: Mapping[str, WeightedMean],
                         context: Any) -> List[Any]:
  """The curves, and whether a host wants to stop, in one reduction."""
  asked = tf.placeholder_with_default(0.0, [], name="stop_asked")
  sums = context.merge_call(
      lambda strategy, value: strategy.extended.reduce_to(
          tf.distribute.ReduceOp.SUM, value, destinations=value),
      args=(tf.stack([asked] + [part for curve in curves.values()
                                for part in (curve.total, curve.weight)]),))
  for i, (name, curve) in enumerate(curves.items()):
    total, weight = sums[2 * i + 1], sums[2 * i + 2]
    tf.summary.scalar(name, total / (weight + curve.epsilon))
  tf.add_to_collection(hooks.STOP_ASKED, asked)
  tf.add_to_collection(hooks.STOP_VOTES, sums[0])
  return [sums]


def _spans_hosts(strategy: Any) -> bool:
  return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


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
