"""LAMB against a reference in NumPy, on 0, 1 and 2 replicas.

0 stands for no distribution strategy at all, as in Google's own scripts.
"""
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import optimization
import optimization_multigpu
import replicas

RATE = 0.01
STEPS = 6
# Kernels, one that starts at 0 (its norm has no direction), an embedding table
# and the kinds that are excluded from the decay.
SHAPES = {"layer/kernel": [3, 4], "layer/bias": [4],
          "layer/LayerNorm/gamma": [4], "zeros/kernel": [2, 2],
          "embeddings/table": [5, 3]}
IDS = [0, 3, 3, 1]


def initial_values():
  random = np.random.RandomState(1)
  values = {name: random.normal(size=shape).astype(np.float32)
            for name, shape in sorted(SHAPES.items())}
  values["zeros/kernel"][:] = 0.0
  return values


def gradients():
  """[step][name], some of them longer than the clip norm of 1."""
  random = np.random.RandomState(2)
  return [{name: (random.normal(size=shape) * size).astype(np.float32)
           for name, shape in sorted(SHAPES.items())}
          for size in (1.0, 0.02, 3.0, 0.1, 0.001, 2.0)]


def reference(first, last, num_warmup_steps, state=None):
  """The published algorithm in float64; returns (weights, m, v) by name."""
  if state is None:
    zeros = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    start = {name: value.astype(np.float64)
             for name, value in initial_values().items()}
    state = (start, zeros, dict(zeros))
  w, m, v = (dict(part) for part in state)
  for step in range(first, last):
    g = {name: value.astype(np.float64)
         for name, value in gradients()[step].items()}
    # Only rows that were looked up have a gradient.
    g["embeddings/table"][[2, 4]] = 0.0
    norm = np.sqrt(sum((value ** 2).sum() for value in g.values()))
    rate = RATE * (1 - step / 10.0)
    if step < num_warmup_steps:
      rate = RATE * step / num_warmup_steps
    t = step + 1
    for name in w:
      grad = g[name] * min(1.0, 1.0 / norm)
      m[name] = 0.9 * m[name] + 0.1 * grad
      v[name] = 0.999 * v[name] + 0.001 * grad ** 2
      u = (m[name] / (1 - 0.9 ** t)
           / (np.sqrt(v[name] / (1 - 0.999 ** t)) + 1e-6))
      ratio = 1.0
      if not re.search("LayerNorm|bias", name):
        u = u + 0.01 * w[name]
        lengths = np.linalg.norm(w[name]), np.linalg.norm(u)
        ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
      w[name] = w[name] - rate * ratio * u
  return w, m, v


def build_step(num_replicas, num_warmup_steps, **settings):
  """One replica; only the mean of the replicas' gradients is the given one."""
  count = max(num_replicas, 1)
  me = replicas.replica_id() if num_replicas else 0
  share = (2 * me + 1.0) / count
  step = tf.train.get_or_create_global_step()
  loss = 0.0
  given = gradients()
  for name, value in sorted(initial_values().items()):
    var = tf.get_variable(name, initializer=value)
    grad = tf.gather(np.stack([grads[name] for grads in given]), step)
    if name == "embeddings/table":
      # Row 3 is looked up twice, each time with half of its gradient.
      halves = np.float32([[1], [0.5], [0.5], [1]])
      var, grad = tf.gather(var, IDS), tf.gather(grad, IDS) * halves
    loss += tf.reduce_sum(var * grad) * share
  return {"train_op": optimization.create_optimizer(
      loss, RATE, 10, num_warmup_steps, False,
      optimizer=optimization.LAMB, **settings)}


def compare(state, values):
  for part, ending in zip(state, ("", "/adam_m", "/adam_v")):
    for name, wanted in part.items():
      found = [value for key, value in values.items()
               if re.sub("/replica_1$", "", key) == name + ending]
      assert found
      for value in found:
        # Adam's kernel has 1 - beta2 in float32: 1.3e-5 off in v, and in
        # nothing else, as the correction has the same number.
        np.testing.assert_allclose(
            value, wanted, rtol=2e-5 if ending == "/adam_v" else 2e-6,
            atol=5e-8 if not ending else 1e-9, err_msg=name + ending)


def train(num_replicas, num_warmup_steps, num_steps, restore=None, save=None):
  """Trains; yields {name: value} after each step."""
  with tf.Graph().as_default():
    results = replicas.on_replicas(
        num_replicas, lambda: build_step(num_replicas, num_warmup_steps))
    train_op = tf.group(*[result["train_op"] for result in results])
    variables = {var.name.split(":")[0]: var for var in tf.global_variables()}
    saver = tf.train.Saver()
    with tf.Session(config=replicas.cpu_session_config(
        max(num_replicas, 1))) as session:
      session.run(tf.global_variables_initializer())
      if restore:
        saver.restore(session, restore)
      for _ in range(num_steps):
        session.run(train_op)
        yield session.run(variables)
      if save:
        saver.save(session, save)


@pytest.mark.parametrize("num_replicas", [0, 1, 2])
@pytest.mark.parametrize("num_warmup_steps", [0, 3])
def test_steps_are_those_of_the_reference(num_replicas, num_warmup_steps):
  steps = train(num_replicas, num_warmup_steps, STEPS)
  for t, values in enumerate(steps, 1):
    compare(reference(0, t, num_warmup_steps), values)
    assert values["global_step"] == t
  # Slots and nothing else, with the names of the other optimizer.
  saved = {name for name in values if "/replica_" not in name}
  assert saved == {"global_step"} | {
      name + ending for name in SHAPES for ending in ("", "/adam_m", "/adam_v")}


def test_the_first_step_is_a_step():
  """Bias correction: a kernel moves by rate x its length, exactly."""
  first, = train(1, 0, 1)
  for name in ("layer/kernel", "embeddings/table"):
    start = initial_values()[name].astype(np.float64)
    assert np.linalg.norm(first[name] - start) == pytest.approx(
        RATE * np.linalg.norm(start), rel=3e-6)
  # Ratio 1, no decay: Adam's first step has the length 1 in each place.
  moved = first["layer/bias"] - initial_values()["layer/bias"]
  np.testing.assert_allclose(np.abs(moved), RATE, rtol=1e-3)


def test_the_count_of_steps_goes_on_with_a_checkpoint(tmp_path):
  path = str(tmp_path / "model.ckpt")
  list(train(2, 0, 2, save=path))
  *_, last = train(1, 0, STEPS - 2, restore=path)
  compare(reference(0, STEPS, 0), last)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_skipped_update_is_not_counted(num_replicas):
  """With a loss scale too large for one update, then as without it."""
  def step():
    scale = optimization.DynamicLossScale(initial=2.0 ** 127)
    return build_step(num_replicas, 0, loss_scale=scale)

  with tf.Graph().as_default():
    results = replicas.on_replicas(num_replicas, step)
    train_op = tf.group(*[result["train_op"] for result in results])
    variables = {var.name.split(":")[0]: var for var in tf.global_variables()}
    with tf.Session(
        config=replicas.cpu_session_config(num_replicas)) as session:
      session.run(tf.global_variables_initializer())
      session.run(train_op)
      values = session.run(variables)
      assert values["global_step"] == 0
      compare(reference(0, 0, 0), values)
      scale, = (var for var in tf.global_variables()
                if var.name == "loss_scale:0")
      session.run(scale.assign(8.0))
      session.run(train_op)
      values = session.run(variables)
      assert values["global_step"] == 1
      if num_replicas == 1:  # Two send theirs as float16.
        compare(reference(0, 1, 0), values)


def test_an_unknown_optimizer_is_refused():
  assert optimization.OPTIMIZERS == ("adamw", "lamb")
  with pytest.raises(ValueError, match="optimizer='sgd', wanted one of adamw"):
    optimization_multigpu.create_optimizer(0.0, 1e-3, 10, 1, False,
                                           optimizer="sgd")
