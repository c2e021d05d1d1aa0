"""Gradient accumulation: one weight update from several micro-batches.

A replica's rows are cut into micro-batches that are computed one after another
in a loop of the graph. Their gradients are added up first; then comes one
reduction over the replicas, one clip and one update, so the result is that of
the whole batch at once, with the memory of one micro-batch. One session call is
one weight update: steps, hooks and checkpoints do not know of micro-batches.
"""
import itertools
from typing import Any, Callable, Dict, List, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

import modeling

_GRADIENT_NUMBERS = itertools.count()

# A variable getter, see tf.variable_scope(custom_getter=...).
Getter = Callable[..., Any]


class Sums(NamedTuple):
  """What is computed of some rows: adds up over micro-batches."""
  loss: Any  # scalar: the rows' share of the loss of the whole batch
  pairs: List[Any]  # pairs of scalars


def recording_getter(variables: Dict[str, Any]) -> Getter:
  """A getter that notes the trainable variables it gives: {name: variable}."""
  def getter(get, name, *args, **kwargs):
    variable = get(name, *args, **kwargs)
    if variable.trainable:
      variables[name] = variable
    return variable
  return getter


def accumulate(compute: Callable[[Dict[str, Any], Getter], Sums],
               features: Dict[str, Any], variables: Mapping[str, Any],
               num_pairs: int, num_micro_batches: int,
               loss_scale: Any = 1.0) -> Sums:
  """Computes a batch in micro-batches.

  Args:
    compute: makes the graph of some rows; takes their features and the getter
      that it must use for its variables, which exist already.
    features: {name: [rows, ...]}; rows is a multiple of num_micro_batches.
    variables: {name: variable}: all that are trained.
    num_pairs: number of pairs that `compute` returns.
    num_micro_batches: number of equal parts.
    loss_scale: factor of the loss while the gradients are computed, for half
      precision; it is taken out of them again.

  Returns:
    The sums over all micro-batches. The gradient of the loss with respect to
    the variables is what was added up. The pairs have no gradient.
  """
  parts = {name: _split(value, num_micro_batches)
           for name, value in features.items()}
  used: List[bool] = []

  def body(index, loss, pairs, gradients):
    # Variables from outside have no gradient in here, tensors read in here do.
    tensors: Dict[str, Any] = {}
    sums = compute({name: value[index] for name, value in parts.items()},
                   _reading_getter(variables, tensors))
    new = tf.gradients(sums.loss * loss_scale,
                       [tensors[name] for name in variables])
    used[:] = [gradient is not None for gradient in new]
    gradients = [
        total if gradient is None else total + tf.convert_to_tensor(gradient)
        for total, gradient in zip(gradients, new)]
    pairs = [(a + c, b + d) for (a, b), (c, d) in zip(pairs, sums.pairs)]
    return index + 1, loss + sums.loss, pairs, gradients

  zero = tf.constant(0.0)
  _, loss, pairs, gradients = tf.while_loop(
      lambda index, *_: index < num_micro_batches, body,
      (tf.constant(0), zero, [(zero, zero)] * num_pairs,
       [tf.zeros(variable.shape) for variable in variables.values()]),
      parallel_iterations=1, back_prop=False)
  trained = zip(variables.values(), gradients, used)
  return Sums(_with_gradients(loss, [
      (variable, gradient) for variable, gradient, is_used in trained
      if is_used], loss_scale), pairs)


def _split(value: Any, num_parts: int) -> Any:
  """[rows, ...] -> [num_parts, rows / num_parts, ...]."""
  shape = modeling.get_shape_list(value)
  return tf.reshape(value, [num_parts, shape[0] // num_parts] + shape[1:])


def _reading_getter(variables: Mapping[str, Any],
                    tensors: Dict[str, Any]) -> Getter:
  """Gives a tensor with the value instead of a variable."""
  def getter(get, name, *args, **kwargs):
    if name not in variables:
      return get(name, *args, **kwargs)
    if name not in tensors:
      tensors[name] = tf.identity(variables[name])
    return tensors[name]
  return getter


def _with_gradients(loss: Any, pairs: List[Any], scale: Any) -> Any:
  """The loss; its gradients are given as [(variable, gradient x scale)].

  Not tf.custom_gradient: it refuses a loss that was computed from variables.
  """
  name = "AccumulatedGradients{}".format(next(_GRADIENT_NUMBERS))

  @tf.RegisterGradient(name)
  def _gradients(op, *output_gradients):
    del op
    factor = output_gradients[0] / scale
    return [None] + [factor * gradient for _, gradient in pairs]

  inputs = [loss] + [tf.convert_to_tensor(variable) for variable, _ in pairs]
  with tf.get_default_graph().gradient_override_map({"IdentityN": name}):
    return tf.identity_n(inputs)[0]
