"""The optimizer against reference trajectories, on 0, 1, 2 and 4 replicas.

0 stands for no distribution strategy at all, as in Google's own scripts.
"""
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import optimization
import optimization_multigpu
import replicas

TABLE = "toy/embeddings/word_embeddings"
DENSE = ["toy/encoder/dense/kernel", "toy/encoder/dense/bias",
         "toy/LayerNorm/gamma", "toy/LayerNorm/beta"]
UNUSED = "toy/unused/kernel"


def toy_step(golden, num_replicas):
  """One replica of the toy model of golden/optimizer.

  The replicas' gradients differ from one another, only their mean is the
  golden one: a program that clips before it averages is found out.
  """
  count = max(num_replicas, 1)
  me = replicas.replica_id() if num_replicas else 0
  # 1 -> [1]; 2 -> [.5, 1.5]; 4 -> [.25, .75, 1.25, 1.75]: mean 1.
  share = (2 * me + 1.0) / count
  step = tf.train.get_or_create_global_step()
  loss = 0.0
  for name in DENSE:
    var = tf.get_variable(name, initializer=golden["init/" + name])
    loss += tf.reduce_sum(var * tf.gather(golden["grad/" + name], step)) * share
  table = tf.get_variable(TABLE, initializer=golden["init/" + TABLE])
  # Each replica looks up its own part of the ids; the mean of the parts,
  # each times `count`, is the whole.
  mine = slice(me, None, count)
  indices = tf.gather(golden["grad_embedding_indices"][:, mine], step)
  values = tf.gather(golden["grad_embedding_values"][:, mine], step)
  loss += tf.reduce_sum(tf.gather(table, indices) * values) * count
  tf.get_variable(UNUSED, initializer=golden["init/" + UNUSED])
  train_op = optimization.create_optimizer(
      loss, float(golden["init_lr"]), int(golden["num_train_steps"]),
      int(golden["num_warmup_steps"]), False)
  return {"train_op": train_op}


@pytest.mark.parametrize("num_replicas", [0, 1, 2, 4])
def test_trajectory(shared, num_replicas):
  """Cases 60 and 62: weights, slots and their names are those of one device."""
  path = shared / "golden" / "optimizer" / "trajectory_dense_gradients.npz"
  golden = dict(np.load(str(path)))
  with tf.Graph().as_default() as graph:
    results = replicas.on_replicas(
        num_replicas, lambda: toy_step(golden, num_replicas))
    train_op = tf.group(*[result["train_op"] for result in results])
    prefixes = [""] + ["replica_%d/" % i for i in range(1, num_replicas)]
    fetched = [[graph.get_tensor_by_name(prefix + name + ":0")
                for prefix in prefixes]
               for name in ("learning_rate", "gradient_norm")]
    variables = {var.name.split(":")[0]: var for var in tf.global_variables()}
    wanted = {key[len("after/"):] for key in golden if key.startswith("after/")}
    saved = {name for name in variables if "/replica_" not in name}
    assert saved == wanted | {"global_step"}
    with tf.Session(config=replicas.cpu_session_config(
        max(num_replicas, 1))) as session:
      session.run(tf.global_variables_initializer())
      for t in range(10):
        _, (rates, norms) = session.run([train_op, fetched])
        np.testing.assert_allclose(
            rates, golden["learning_rate"][t], rtol=0, atol=3e-9)
        np.testing.assert_allclose(
            norms, golden["global_norm_dense"][t], rtol=1e-5)
        values = session.run(variables)
        assert values["global_step"] == t + 1
        for name, value in values.items():
          if name != "global_step":
            compare(name, value, golden["after/" + name.replace(
                "/replica_%s" % name.rsplit("_", 1)[-1], "")][t])


def compare(name, value, wanted):
  if "/adam_v" in name:
    np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-9)
  else:
    atol = 1e-7 if "/adam_m" in name else 1e-6
    np.testing.assert_allclose(value, wanted, rtol=0, atol=atol, err_msg=name)


def test_learning_rate_curves(shared):
  golden = np.load(
      str(shared / "golden" / "optimizer" / "learning_rate_curves.npz"))
  for i, init_lr in enumerate(golden["combos_init_lr"]):
    with tf.Graph().as_default(), tf.Session() as session:
      step = tf.placeholder(tf.int64, [])
      rate = optimization_multigpu.learning_rate_schedule(
          float(init_lr), int(golden["combos_num_train_steps"][i]),
          int(golden["combos_num_warmup_steps"][i]), step)
      mine = [session.run(rate, {step: s}) for s in golden["curve_%d_step" % i]]
    np.testing.assert_allclose(mine, golden["curve_%d_lr" % i], rtol=0,
                               atol=3e-7 * init_lr)


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_equal_rows_on_all_replicas_give_the_update_of_one(num_replicas):
  """Case 62: the same rows on N replicas must not train N times as much."""
  def step():
    w = tf.get_variable("w", initializer=[1.0, 2.0])
    optimizer = optimization_multigpu.AdamWeightDecayOptimizer(
        learning_rate=0.5, clip_norm=1.0)
    return {"op": optimizer.minimize(tf.reduce_sum(w * [3.0, -4.0]))}

  with tf.Graph().as_default():
    results = replicas.on_replicas(num_replicas, step)
    ops = [result["op"] for result in results]
    w = [v for v in tf.trainable_variables() if v.name.startswith("w")]
    moments = [v for v in tf.global_variables() if "adam_m" in v.name]
    with tf.Session(
        config=replicas.cpu_session_config(num_replicas)) as session:
      session.run(tf.global_variables_initializer())
      session.run(ops)
      # The gradient (3, -4) is clipped to (.6, -.8); m is a tenth of it.
      for value in session.run(moments):
        np.testing.assert_allclose(value, [0.06, -0.08], rtol=1e-6)
      for value in session.run(w):
        np.testing.assert_allclose(
            value, [1 - 0.5 * 0.06 / (0.6 * 0.001 ** 0.5 + 1e-6),
                    2 + 0.5 * 0.08 / (0.8 * 0.001 ** 0.5 + 1e-6)], rtol=1e-4)


def test_use_tpu_is_refused():
  with pytest.raises(ValueError, match="use_tpu"):
    optimization.create_optimizer(0.0, 1e-3, 10, 1, True)


def test_loss_without_variables_is_refused():
  with tf.Graph().as_default():
    tf.get_variable("w", [2])
    with pytest.raises(ValueError, match="No variable has a gradient"):
      optimization.create_optimizer(tf.constant(1.0), 1e-3, 10, 1, False)
