"""AdamW for BERT that is right on one device and on many.

This file stands alone: it imports only the standard library and TensorFlow,
so that it can be copied over `optimization.py` in a checkout of
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
import re
from typing import Any, Dict, List, Optional

import tensorflow.compat.v1 as tf

# Variables whose names match are not decayed, as BERT was trained.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias"]


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu,
                     *, weight_decay_rate=0.01, clip_norm=1.0):
  """Makes the training op: gradients, mean over replicas, clip, AdamW, step.

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

  Returns:
    An op that makes one update and adds 1 to `global_step`.

  Raises:
    ValueError: `use_tpu` is set.
  """
  if use_tpu:
    raise ValueError(
        "create_optimizer(use_tpu=True): this optimizer is for GPUs and CPUs. "
        "Use Google's own optimization.py on TPUs.")
  global_step = tf.train.get_or_create_global_step()
  learning_rate = learning_rate_schedule(
      init_lr, num_train_steps, num_warmup_steps, global_step)
  learning_rate = tf.identity(learning_rate, name="learning_rate")
  tf.summary.scalar("optimizer/learning_rate", learning_rate)
  optimizer = AdamWeightDecayOptimizer(
      learning_rate=learning_rate,
      weight_decay_rate=weight_decay_rate,
      exclude_from_weight_decay=NO_WEIGHT_DECAY,
      clip_norm=clip_norm)
  grads_and_vars = optimizer.compute_gradients(
      loss, tf.trainable_variables(), gate_gradients=optimizer.GATE_NONE)
  update = optimizer.apply_gradients(grads_and_vars)
  # The rate is read before the update and the step counted after it: without
  # this order the first step may train with the rate of the second one.
  with tf.control_dependencies([update]):
    return tf.group(global_step.assign_add(1))


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
               clip_norm=None):
    """Args:

      learning_rate: number or scalar tensor.
      weight_decay_rate: decay of the weights, times the learning rate.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the root of the second moment.
      exclude_from_weight_decay: regular expressions of variable names.
      name: name of the optimizer.
      clip_norm: largest global norm of the averaged gradient; None = any.
    """
    super().__init__(False, name)
    self.learning_rate = learning_rate
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay
    self.clip_norm = clip_norm
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
    context = tf.distribute.get_replica_context()
    grads, slots = context.merge_call(
        self._reduce_and_make_slots, args=(grads, variables))
    if self.clip_norm is not None:
      grads, norm = tf.clip_by_global_norm(grads, self.clip_norm)
      tf.identity(norm, name="gradient_norm")
    return tf.group(*[
        self._update(var, grad, m, v)
        for var, grad, (m, v) in zip(variables, grads, slots)])

  def _reduce_and_make_slots(self, strategy, grads, variables):
    """Averages gradients over the replicas (cross-replica context)."""
    if strategy.num_replicas_in_sync > 1:
      reduce_op = (tf.distribute.ReduceOp.SUM if self._loss_is_scaled
                   else tf.distribute.ReduceOp.MEAN)
      grads = strategy.extended.batch_reduce_to(
          reduce_op, list(zip(grads, variables)))
    with tf.init_scope():
      slots = [(self._zeros_slot(var, "m", "adam_m"),
                self._zeros_slot(var, "v", "adam_v")) for var in variables]
    return tuple(grads), tuple(slots)

  def _update(self, var, grad, m, v):
    """Updates this replica's copy of a variable: decay, then Adam."""
    learning_rate = tf.convert_to_tensor(self.learning_rate, tf.float32)
    decay = self._weight_decay_of(var.name)
    # The kernel's step is lr sqrt(1 - beta2_power) / (1 - beta1_power): powers
    # of 0 switch its bias correction off.
    settings: Dict[str, Any] = dict(
        beta1_power=0.0, beta2_power=0.0, lr=learning_rate, beta1=self.beta_1,
        beta2=self.beta_2, epsilon=self.epsilon, grad=grad)
    # Adam's kernel subtracts from the decayed weight what it would subtract
    # from the original one, so decaying first is the update of the class. It
    # waits for the gradient: without that, the forward pass might read weights
    # that are decayed already.
    before: List[Any] = [grad]
    if not hasattr(var, "handle"):
      # Reference variables: TF 1 without a strategy, as in Google's scripts.
      if decay:
        with tf.control_dependencies(before):
          before = [tf.assign_sub(var, learning_rate * decay * var)]
      with tf.control_dependencies(before):
        return tf.raw_ops.ApplyAdam(
            var=var._ref(), m=m._ref(), v=v._ref(), **settings).op
    # Ops on the handle touch this replica's copy only; `var.assign_sub` would
    # ask for a reduction.
    if decay:
      with tf.control_dependencies(before):
        before = [tf.raw_ops.AssignSubVariableOp(
            resource=var.handle, value=learning_rate * decay * var)]
    with tf.control_dependencies(before):
      return tf.raw_ops.ResourceApplyAdam(
          var=var.handle, m=m.handle, v=v.handle, **settings)

  def _weight_decay_of(self, name: str) -> float:
    excluded = any(re.search(pattern, name)
                   for pattern in self.exclude_from_weight_decay or [])
    return 0.0 if excluded else self.weight_decay_rate


def _densify(grad: Any, var: tf.Variable) -> Any:
  """Sums the slices of an embedding gradient into a dense tensor."""
  if not isinstance(grad, tf.IndexedSlices):
    return grad
  return tf.math.unsorted_segment_sum(
      grad.values, grad.indices, var.shape.as_list()[0])
