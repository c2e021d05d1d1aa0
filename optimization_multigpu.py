"""AdamW and LAMB for BERT, right on one device and on many.

This file stands alone: it imports only the standard library, NumPy and
TensorFlow, so that it can be copied over `optimization.py` in a checkout of
google-research/bert. The call in Google's scripts stays as it is:

    train_op = optimization.create_optimizer(
        total_loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu)

Alone it trains as before. Under `tf.distribute.MirroredStrategy` each weight
update is that of one device on the global batch:

1. every replica computes the gradients of the mean loss of its own rows;
2. gradients are averaged over the replicas (dense: the rows of an embedding
   gradient are summed first, or the norm below would not be the gradient's);
3. the average is clipped by its global norm, the same on every replica;
4. every replica applies the same update to its copy of the weights.

Clipping before averaging, or summing instead of averaging, would train
something else with every number of replicas.
"""
import math
import re
from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

ADAMW = "adamw"
LAMB = "lamb"
OPTIMIZERS = (ADAMW, LAMB)
# Variables whose names match are not decayed, as BERT was trained.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias"]
# Enough that the first packs are on their way while the gradients of the first
# layers are computed, few enough that each is large.
DEFAULT_NUM_PACKS = 4
# The collection with the tensor of the loss scale, for those who log it.
LOSS_SCALE = "loss_scale"
# The collection with the norm of the averaged gradient, once for each replica:
# not finite where a gradient was not, and then the update spoils the weights.
GRADIENT_NORM = "gradient_norm"


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu,
                     *, weight_decay_rate=0.01, clip_norm=1.0,
                     num_packs=DEFAULT_NUM_PACKS, loss_scale=None,
                     optimizer=ADAMW):
  """Makes the training op: gradients, mean over replicas, clip, update, step.

  Must be called in replica context (as in a `model_fn`) or without any
  distribution strategy. The tensors "learning_rate" and "gradient_norm" (of
  the averaged gradient, before clipping) can be fetched by name.

  Args:
    loss: scalar, the mean loss over the rows of this replica.
    init_lr: the highest learning rate.
    num_train_steps: weight updates until the rate is 0.
    num_warmup_steps: updates of linear warm-up; 0 or None = none.
    use_tpu: must be false; there for the call in Google's scripts.
    weight_decay_rate: decay of all variables outside NO_WEIGHT_DECAY.
    clip_norm: largest global norm of the averaged gradient.
    num_packs: the gradients are averaged in so many pieces, the last layers'
      first.
    loss_scale: `DynamicLossScale` for half precision. Gradients are computed of
      the scaled loss and cross the wire as float16. When one of them is not
      finite, on whatever replica, all replicas skip the update,
      `global_step` stands still and the scale is halved.
    optimizer: ADAMW, or LAMB for large global batches.

  Returns:
    An op that makes one update and adds 1 to `global_step`.

  Raises:
    ValueError: `use_tpu` is set, or there is no such optimizer.
  """
  if use_tpu:
    raise ValueError(
        "create_optimizer(use_tpu=True): this optimizer is for GPUs and CPUs. "
        "Use Google's own optimization.py on TPUs.")
  if optimizer not in OPTIMIZERS:
    raise ValueError("optimizer=%r, wanted one of %s." %
                     (optimizer, ", ".join(OPTIMIZERS)))
  global_step = tf.train.get_or_create_global_step()
  learning_rate = learning_rate_schedule(
      init_lr, num_train_steps, num_warmup_steps, global_step)
  learning_rate = tf.identity(learning_rate, name="learning_rate")
  tf.summary.scalar("optimizer/learning_rate", learning_rate)
  settings: Dict[str, Any] = dict(
      learning_rate=learning_rate, weight_decay_rate=weight_decay_rate,
      exclude_from_weight_decay=NO_WEIGHT_DECAY, clip_norm=clip_norm,
      num_packs=num_packs, loss_scale=loss_scale)
  updater = (LambOptimizer(global_step=global_step, **settings)
             if optimizer == LAMB else AdamWeightDecayOptimizer(**settings))
  if loss_scale is not None:
    tf.summary.scalar("optimizer/loss_scale", loss_scale.value)
    loss *= loss_scale.value
  grads_and_vars = updater.compute_gradients(
      loss, tf.trainable_variables(), gate_gradients=updater.GATE_NONE)
  update = updater.apply_gradients(grads_and_vars)
  # The rate is read before the update and the step counted after it: without
  # this order the first step may train with the rate of the second one.
  with tf.control_dependencies([update]):
    if loss_scale is None:
      return tf.group(global_step.assign_add(1))
    return tf.group(
        global_step.assign_add(tf.cast(updater.is_finite, tf.int64)),
        loss_scale.update(updater.is_finite))


def learning_rate_schedule(init_lr: float, num_train_steps: int,
                           num_warmup_steps: Optional[int],
                           global_step: tf.Tensor) -> tf.Tensor:
  """Linear warm-up, then the straight line from init_lr to 0.

  The line is measured from step 0, not from the end of the warm-up, so the
  rate jumps down there: 0.9 * init_lr after 10 % of warm-up. All published
  BERT results were trained with this curve.

  Args:
    init_lr: the highest learning rate.
    num_train_steps: the step at which the rate is 0.
    num_warmup_steps: steps of warm-up; 0 or None = none.
    global_step: integer scalar, updates made so far.

  Returns:
    float32 scalar.
  """
  step = tf.cast(global_step, tf.float32)
  done = tf.minimum(step, num_train_steps) / float(num_train_steps)
  decayed = init_lr * (1.0 - done)
  if not num_warmup_steps:
    return decayed
  warm = init_lr * (step / float(num_warmup_steps))
  return tf.where(step < num_warmup_steps, warm, decayed)


class AdamWeightDecayOptimizer(tf.train.Optimizer):
  """Adam with decoupled weight decay and without bias correction.

  One update of a variable w with gradient g (averaged over the replicas):

      m <- beta_1 m + (1 - beta_1) g
      v <- beta_2 v + (1 - beta_2) g^2
      w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay_rate w)

  The slots are called `<variable>/adam_m` and `<variable>/adam_v`, as in
  Google's checkpoints. As in Google's optimizer `apply_gradients` does not
  touch `global_step`, and variables without a gradient get neither update,
  decay nor slots.

  Source: Loshchilov and Hutter, https://arxiv.org/abs/1711.05101; BERT's
  choice to leave out the bias correction.
  """

  def __init__(self,
               learning_rate,
               weight_decay_rate=0.0,
               beta_1=0.9,
               beta_2=0.999,
               epsilon=1e-6,
               exclude_from_weight_decay=None,
               name="AdamWeightDecayOptimizer",
               *,
               clip_norm=None,
               num_packs=DEFAULT_NUM_PACKS,
               loss_scale=None):
    """Args:

      learning_rate: number or scalar tensor.
      weight_decay_rate: decay of the weights, times the learning rate.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the root of the second moment.
      exclude_from_weight_decay: regular expressions of variable names.
      name: name of the optimizer.
      clip_norm: largest global norm of the averaged gradient; None = any.
      num_packs: pieces in which the gradients are averaged.
      loss_scale: `DynamicLossScale`: the gradients are those of the scaled
        loss, and an update that is not finite is skipped.
    """
    super().__init__(False, name)
    self.learning_rate = learning_rate
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay
    self.clip_norm = clip_norm
    self.num_packs = num_packs
    self.loss_scale = loss_scale
    # Whether the update is made: scalar boolean, with a loss scale only.
    self.is_finite = None
    self._loss_is_scaled = False

  def compute_gradients(self, loss, *args, **kwargs):
    """As `tf.train.Optimizer.compute_gradients`, with dense gradients."""
    # Inside an Estimator the base class divides the loss by the number of
    # replicas and leaves it to the optimizer to sum; elsewhere it does not.
    self._loss_is_scaled = (
        tf.distribute.get_loss_reduction() == tf.distribute.ReduceOp.MEAN)
    grads_and_vars = super().compute_gradients(
        loss, *args, **kwargs)
    return [(_densify(grad, var), var) for grad, var in grads_and_vars]

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    """Averages over replicas, clips, updates.

    Args:
      grads_and_vars: pairs of this replica; gradients may be None.
      global_step: not used, see the class.
      name: not used.

    Returns:
      An op that updates this replica's variables.

    Raises:
      RuntimeError: called outside of replica context.
    """
    del global_step, name
    if tf.distribute.in_cross_replica_context():
      raise RuntimeError(
          "apply_gradients was called in cross-replica context: call it in "
          "the model_fn, or through strategy.extended.call_for_each_replica.")
    pairs = [(_densify(grad, var), var) for grad, var in grads_and_vars
             if grad is not None]
    if not pairs:
      raise ValueError("No variable has a gradient: the loss does not depend "
                       "on any of them.")
    grads, variables = zip(*pairs)
    grads = self._average(list(grads))
    slots = tf.distribute.get_replica_context().merge_call(
        self._make_slots, args=(variables,))

    def update():
      clipped = grads
      if self.clip_norm is not None:
        clipped, _ = tf.clip_by_global_norm(grads, self.clip_norm, norm)
      return tf.group(*[
          self._update(var, grad, m, v)
          for var, grad, (m, v) in zip(variables, clipped, slots)])

    if self.loss_scale is not None:
      grads = [tf.cast(grad, tf.float32) / self.loss_scale.value
               for grad in grads]
    norm = tf.identity(tf.global_norm(grads), name="gradient_norm")
    tf.add_to_collection(GRADIENT_NORM, norm)
    if self.loss_scale is None:
      return update()
    # The norm is that of the average: equal on all replicas, and not finite
    # if any gradient of any replica was not.
    self.is_finite = tf.math.is_finite(norm)
    return tf.cond(self.is_finite, update, tf.no_op)

  def _average(self, grads):
    """Averages gradients over the replicas."""
    context = tf.distribute.get_replica_context()
    if context.strategy.num_replicas_in_sync == 1:
      return grads
    reduce_op = (tf.distribute.ReduceOp.SUM if self._loss_is_scaled
                 else tf.distribute.ReduceOp.MEAN)
    packs = _make_packs([grad.shape.num_elements() for grad in grads],
                        self.num_packs)
    packed = [tf.concat([tf.reshape(grads[i], [-1]) for i in pack], axis=0)
              for pack in packs]
    if self.loss_scale is not None:
      packed = [tf.cast(pack, tf.float16) for pack in packed]
    packed = context.merge_call(
        lambda strategy, *packs: _reduce(strategy, reduce_op, packs),
        args=tuple(packed))
    averages = list(grads)
    for pack, values in zip(packs, packed):
      sizes = [grads[i].shape.num_elements() for i in pack]
      for i, average in zip(pack, tf.split(values, sizes)):
        averages[i] = tf.reshape(average, grads[i].shape)
    return averages

  def _make_slots(self, strategy, variables):
    """Makes the slots of all copies (cross-replica context)."""
    del strategy
    with tf.init_scope():
      return tuple((self._zeros_slot(var, "m", "adam_m"),
                    self._zeros_slot(var, "v", "adam_v")) for var in variables)

  def _update(self, var, grad, m, v):
    """Updates this replica's copy of a variable: decay, then Adam."""
    learning_rate = tf.convert_to_tensor(self.learning_rate, tf.float32)
    # Adam's kernel subtracts from the decayed weight what it would subtract
    # from the original one, so decaying first is the update of the class. It
    # waits for the gradient: without that, the forward pass might read weights
    # that are decayed already.
    before: List[Any] = [grad]
    if not self._is_excluded(var.name) and self.weight_decay_rate:
      with tf.control_dependencies(before):
        before = [_subtract(
            var, learning_rate * self.weight_decay_rate * var)]
    with tf.control_dependencies(before):
      return self._apply_adam(var, grad, m, v, learning_rate, self.epsilon)

  def _apply_adam(self, var, grad, m, v, learning_rate, epsilon):
    """The fused kernel: new m, new v, var -= lr m / (sqrt(v) + epsilon)."""
    # The kernel's step is lr sqrt(1 - beta2_power) / (1 - beta1_power): powers
    # of 0 switch its bias correction off.
    settings: Dict[str, Any] = dict(
        beta1_power=0.0, beta2_power=0.0, lr=learning_rate, beta1=self.beta_1,
        beta2=self.beta_2, epsilon=epsilon, grad=grad)
    if _is_reference(var):
      return tf.raw_ops.ApplyAdam(
          var=var._ref(), m=m._ref(), v=v._ref(), **settings).op
    return tf.raw_ops.ResourceApplyAdam(
        var=var.handle, m=m.handle, v=v.handle, **settings)

  def _is_excluded(self, name: str) -> bool:
    return any(re.search(pattern, name)
               for pattern in self.exclude_from_weight_decay or [])


class LambOptimizer(AdamWeightDecayOptimizer):
  """LAMB: Adam's direction, each variable's step as long as the variable.

  One update of a variable w with gradient g (averaged and clipped), t = 1 for
  the first one:

      m <- beta_1 m + (1 - beta_1) g
      v <- beta_2 v + (1 - beta_2) g^2
      u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)
          + weight_decay_rate w
      w <- w - learning_rate (|w| / |u|) u

  The ratio is 1 where |w| or |u| is 0. Variables that are excluded from the
  decay (LayerNorm, biases) have the ratio 1 as well: the paper leaves this
  open, its authors' implementation and NVIDIA's do so, and a bias that starts
  at 0 would hardly move otherwise.

  The moments are those of AdamWeightDecayOptimizer under the same names. A
  training may therefore go on from a checkpoint of the other optimizer: its
  moments have taken `global_step` gradients, which is what t counts. Weights
  that are only loaded start with empty moments at step 0, so t is 1 there too.

  Source: You et al. 2019, https://arxiv.org/abs/1904.00962, algorithm 2 with
  phi(z) = z; github.com/NVIDIA/DeepLearningExamples for what is excluded.
  """

  def __init__(self, learning_rate, *args, global_step, **kwargs):
    """As AdamWeightDecayOptimizer.

    Args:
      learning_rate: number or scalar tensor.
      *args: see AdamWeightDecayOptimizer.
      global_step: integer scalar, updates made so far.
      **kwargs: see AdamWeightDecayOptimizer.
    """
    super().__init__(learning_rate, *args, **kwargs)
    t = tf.cast(global_step, tf.float32) + 1.0
    self._m_correction = _one_minus_power(self.beta_1, t)
    self._v_correction = tf.sqrt(_one_minus_power(self.beta_2, t))

  def _update(self, var, grad, m, v):
    """Updates this replica's copy of a variable."""
    learning_rate = tf.convert_to_tensor(self.learning_rate, tf.float32)
    # m / c / (sqrt(v) / d + epsilon) = (d / c) m / (sqrt(v) + d epsilon)
    epsilon = self.epsilon * self._v_correction
    scale = self._v_correction / self._m_correction
    if self._is_excluded(var.name):
      with tf.control_dependencies([grad]):
        return self._apply_adam(
            var, grad, m, v, learning_rate * scale, epsilon)
    # A rate of 0: new moments, old weights.
    with tf.control_dependencies([grad]):
      moments = self._apply_adam(var, grad, m, v, 0.0, epsilon)
    with tf.control_dependencies([moments]):
      weights = _read(var)
      # u / scale: |w| / |u| u is the same for any multiple of u.
      direction = _read(m) / (tf.sqrt(_read(v)) + epsilon)
      if self.weight_decay_rate:
        direction += weights * (self.weight_decay_rate / scale)
      return _descend(var, learning_rate * _ratio(weights, direction, scale),
                      direction)


def _one_minus_power(beta: float, t: Any) -> Any:
  """1 - beta^t, of the float32 that Adam's kernel computes with as beta.

  1 - 0.999 in float32 is off by 1e-5 of itself: with the same number in both
  places the first step is exact. expm1 loses no digits for small results.
  """
  return -tf.math.expm1(t * math.log(float(np.float32(beta))))


def _ratio(weights: Any, direction: Any, otherwise: Any) -> Any:
  """|weights| / |direction|; `otherwise` where one of them is 0."""
  # Half the square of the norm, without a tensor of squares.
  squares = [tf.nn.l2_loss(weights), tf.nn.l2_loss(direction)]
  ratio = tf.sqrt(tf.math.divide_no_nan(*squares))
  return tf.where(ratio > 0.0, ratio, otherwise)


def _is_reference(var: Any) -> bool:
  """Whether it is a variable of TensorFlow 1 as Google's scripts make them."""
  return not hasattr(var, "handle")


# Ops on the handle touch this replica's copy only; `var.assign_sub` would ask
# for a reduction.
def _subtract(var: Any, value: Any) -> Any:
  """Does var -= value."""
  if _is_reference(var):
    return tf.assign_sub(var, value)
  return tf.raw_ops.AssignSubVariableOp(resource=var.handle, value=value)


def _descend(var: Any, rate: Any, delta: Any) -> Any:
  """Does var -= rate * delta, with a scalar rate."""
  if _is_reference(var):
    return tf.raw_ops.ApplyGradientDescent(
        var=var._ref(), alpha=rate, delta=delta).op
  return tf.raw_ops.ResourceApplyGradientDescent(
      var=var.handle, alpha=rate, delta=delta)


def _read(var: Any) -> Any:
  """The value after the control dependencies of here."""
  if _is_reference(var):
    return tf.identity(var._ref())
  return tf.raw_ops.ReadVariableOp(resource=var.handle, dtype=tf.float32)


def _densify(grad: Any, var: tf.Variable) -> Any:
  """Sums the slices of an embedding gradient into a dense tensor."""
  if not isinstance(grad, tf.IndexedSlices):
    return grad
  return tf.math.unsorted_segment_sum(
      grad.values, grad.indices, var.shape.as_list()[0])


def _make_packs(sizes: List[int], num_packs: int) -> List[List[int]]:
  """Divides the indexes of `sizes`, last to first, into packs of like size.

  The last gradients are the first that are computed: their pack is reduced
  while the others are still computed.
  """
  packs: List[List[int]] = [[]]
  done = 0
  for i in reversed(range(len(sizes))):
    if done * num_packs >= sum(sizes) * len(packs):
      packs.append([])
    packs[-1].append(i)
    done += sizes[i]
  return packs


def _reduce(strategy: Any, reduce_op: Any, packs: Any) -> Any:
  """Reduces each pack by itself (cross-replica context)."""
  pairs = [(pack, pack) for pack in packs]
  if hasattr(tf.distribute.experimental, "CommunicationOptions"):
    # One call, so that TensorFlow keeps the order; it joins no packs of more
    # than one byte.
    return tuple(strategy.extended.batch_reduce_to(
        reduce_op, pairs,
        tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1)))
  # TensorFlow 1 would join the packs of one call.
  return tuple(strategy.extended.batch_reduce_to(reduce_op, [pair])[0]
               for pair in pairs)


class DynamicLossScale:
  """The factor that keeps small gradients from vanishing in half precision.

  It is halved when a gradient is not finite, and doubled after
  `steps_per_increase` updates without that. Both numbers are saved with the
  weights as `loss_scale` and `loss_scale_good_steps`. Must be made in replica
  context or without any distribution strategy.

  Source: Micikevicius et al., https://arxiv.org/abs/1710.03740, section 3.2.
  """

  def __init__(self, initial=2.0 ** 15, steps_per_increase=2000):
    def variable(name, value, dtype):
      # All replicas compute the same value.
      return tf.get_variable(
          name, shape=[], dtype=dtype, trainable=False, use_resource=True,
          initializer=tf.constant_initializer(value),
          aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    self._steps_per_increase = steps_per_increase
    self._variable = variable("loss_scale", initial, tf.float32)
    self._good_steps = variable("loss_scale_good_steps", 0, tf.int64)
    # Read once, before the update: the whole step uses one value.
    self.value = tf.convert_to_tensor(self._variable)
    tf.add_to_collection(LOSS_SCALE, self.value)

  def update(self, is_finite):
    """Returns an op; `is_finite`: scalar boolean, equal on all replicas."""
    good_steps = tf.convert_to_tensor(self._good_steps) + 1
    is_due = good_steps >= self._steps_per_increase
    new_scale = tf.where(
        is_finite, tf.where(is_due, self.value * 2.0, self.value),
        tf.maximum(self.value / 2.0, 1.0))
    stays = tf.logical_and(is_finite, tf.logical_not(is_due))
    return tf.group(
        self._variable.assign(new_scale),
        self._good_steps.assign(
            tf.where(stays, good_steps, tf.zeros_like(good_steps))))
