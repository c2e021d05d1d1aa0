"""Loss scaling, number formats and XLA, on CPU replicas.

On the CPU fp16 computes in float32: what is tried is the scaling, and that an
update that is not finite is skipped on all replicas.
"""
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import golden_training
import optimization
import replicas
from conftest import ROOT
from multigpu import devices
from multigpu import hooks
from multigpu import session_options
from multigpu.errors import UserError
from tasks.squad_head import squad_head

tf.logging.set_verbosity(tf.logging.ERROR)

STEPS_PER_INCREASE = 3


def toy_step(fail_at, failing_replica):
  """One replica of a line; its gradient is infinite in some steps."""
  step = tf.train.get_or_create_global_step()
  count = tf.get_variable(
      "count", shape=[], dtype=tf.int64, trainable=False,
      initializer=tf.zeros_initializer(),
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
  weight = tf.get_variable("weight", initializer=tf.ones([3]))
  fails = tf.reduce_any(tf.equal(count, tf.constant(fail_at, tf.int64)))
  mine = tf.constant(replicas.replica_id() == failing_replica)
  factor = tf.where(tf.logical_and(fails, mine), np.float32(np.inf),
                    np.float32(1.0))
  scale = optimization.DynamicLossScale(
      initial=1024.0, steps_per_increase=STEPS_PER_INCREASE)
  train_op = optimization.create_optimizer(
      tf.reduce_sum(weight) * factor, 0.1, 100, 0, False, loss_scale=scale)
  with tf.control_dependencies([train_op]):
    train_op = tf.group(count.assign_add(1))
  return {"train_op": train_op, "scale": scale.value, "step": step,
          "weight": weight}


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_an_infinite_gradient_of_one_replica_skips_the_update_of_all(
    num_replicas):
  with tf.Graph().as_default():
    results = replicas.on_replicas(
        num_replicas, lambda: toy_step([1, 2], num_replicas - 1))
    train_op = tf.group(*[result["train_op"] for result in results])
    on_the_wire = [op for op in tf.get_default_graph().get_operations()
                   if op.type == "Cast" and op.outputs[0].dtype == tf.float16]
    steps, scales, weights = [], [], []
    with tf.Session(
        config=replicas.cpu_session_config(num_replicas)) as session:
      session.run(tf.global_variables_initializer())
      for _ in range(8):
        scales.append(session.run(results[0]["scale"]))
        session.run(train_op)
        steps.append(session.run(results[0]["step"]))
        weights.append(session.run([result["weight"] for result in results]))
  assert bool(on_the_wire) == (num_replicas > 1)
  assert steps == [1, 1, 1, 2, 3, 4, 5, 6]
  # Halved after each of the two, doubled after three good updates.
  assert scales == [1024, 1024, 512, 256, 256, 256, 512, 512]
  np.testing.assert_array_equal(weights[0], weights[2])
  assert (weights[3][0] < weights[2][0]).all()
  for copies in weights:
    np.testing.assert_array_equal(copies[0], copies[-1])
    assert np.isfinite(copies).all()


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas, accumulation_steps", [
    pytest.param(1, 2, marks=pytest.mark.long), (2, 1)])
def test_loss_scaling_trains_the_same(shared, tmp_path, num_replicas,
                                      accumulation_steps):
  golden, checkpoint = golden_training.load(shared, "squad_strong")
  steps = golden_training.train(
      golden, checkpoint, squad_head, shared, str(tmp_path), num_replicas,
      precision=session_options.FP16, accumulation_steps=accumulation_steps)
  losses = [step["loss"] for step in steps]
  # Two replicas send their gradients as float16, which moves them a little.
  np.testing.assert_allclose(losses, golden["loss"],
                             rtol=1e-5 if num_replicas == 1 else 1e-4)
  reader = load_full_precision(tmp_path)
  assert reader.get_tensor("loss_scale") == 2.0 ** 15
  assert reader.get_tensor("loss_scale_good_steps") == golden_training.STEPS


def load_full_precision(output_dir):
  """The last checkpoint, which must hold no half precision."""
  reader = tf.train.load_checkpoint(
      tf.train.latest_checkpoint(str(output_dir)))
  for name, dtype in reader.get_variable_to_dtype_map().items():
    assert dtype in (tf.float32, tf.int64), name
  return reader


@pytest.mark.slow
@pytest.mark.skipif(tf.__version__.startswith("1.")
                    or not session_options._cpu_has("avx512f"),
                    reason="bf16 needs TensorFlow 2 and AVX-512")
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_bf16_trains_nearly_the_same(shared, tmp_path, num_replicas):
  golden, checkpoint = golden_training.load(shared, "squad_strong")
  steps = golden_training.train(
      golden, checkpoint, squad_head, shared, str(tmp_path), num_replicas,
      precision=session_options.BF16)
  # Three digits are left of each number, so the losses are near, not equal.
  difference = np.abs(
      np.array([step["loss"] for step in steps]) / golden["loss"] - 1.0)
  assert 1e-5 < difference.max() < 2e-2, difference
  load_full_precision(tmp_path)


def test_a_skipped_update_is_logged(caplog):
  hook = hooks.ProgressHook(hooks.ProgressSettings(10, 4, 1))
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.constant(1.0))
    scale = tf.where(tf.equal(step, 1), 512.0, 1024.0)
    tf.add_to_collection(optimization.LOSS_SCALE, scale)
    with tf.control_dependencies([scale]):
      train_op = tf.group(step.assign_add(1))
    hook.begin()
    with tf.train.MonitoredSession(hooks=[hook]) as session, \
        caplog.at_level("INFO"):
      for _ in range(4):
        session.run(train_op)
  skipped = [record.getMessage() for record in caplog.records
             if "was skipped" in record.getMessage()]
  assert len(skipped) == 1 and "1024 -> 512" in skipped[0]


XLA_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import tensorflow.compat.v1 as tf
from multigpu import devices
from multigpu import hooks
count = int(sys.argv[2])
found = devices.set_up(devices.DeviceSettings(
    num_gpus=count, device_type="cpu", use_xla=True))
with tf.Graph().as_default():
  value = first = tf.placeholder(tf.float32, [4, 4])
  for i in range(count):
    with tf.device("/cpu:%d" % i):
      value = tf.tanh(tf.matmul(value, value) + 1.0) * 2.0
  metadata = tf.RunMetadata()
  with tf.Session(config=found.session_config) as session:
    session.run(value, {first: [[1] * 4] * 4},
                options=tf.RunOptions(output_partition_graphs=True),
                run_metadata=metadata)
  print("XLA", sorted(
      node.device[-5:] for graph in metadata.partition_graphs
      for node in graph.node if node.op == "_XlaRun"))
"""


KERNELS_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import multigpu
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
metadata = tf.RunMetadata()
x = tf.placeholder(tf.float32, [64, 64])
with tf.Session() as session:
  session.run(tf.matmul(x, x), {x: np.ones([64, 64])},
              options=tf.RunOptions(output_partition_graphs=True),
              run_metadata=metadata)
print("kernel", *[node.op for graph in metadata.partition_graphs
                  for node in graph.node if "MatMul" in node.op])
"""


@pytest.mark.skipif(tf.__version__.startswith("1."),
                    reason="TensorFlow 1.15 has no oneDNN")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN is for x86")
@pytest.mark.parametrize("value, wanted", [(None, True), ("0", False)])
def test_fast_kernels_of_the_cpu(value, wanted):
  environment = dict(os.environ)
  environment.pop("TF_ENABLE_ONEDNN_OPTS", None)
  if value:
    environment["TF_ENABLE_ONEDNN_OPTS"] = value
  done = subprocess.run(
      [sys.executable, "-c", KERNELS_PROGRAM, str(ROOT)], timeout=300,
      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env=environment)
  assert ("kernel _Mkl" in done.stdout) == wanted, done.stdout
  assert "MatMul" in done.stdout, done.stdout


# What TensorFlow 1.15 can.
XLA_REPLICAS = 1 if tf.__version__.startswith("1.") else 2


def test_xla_compiles_on_each_device():
  done = subprocess.run(
      [sys.executable, "-c", XLA_PROGRAM, str(ROOT), str(XLA_REPLICAS)],
      timeout=300, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  wanted = ["CPU:%d" % i for i in range(XLA_REPLICAS)]
  assert "XLA %s" % wanted in done.stdout, done.stdout


@pytest.mark.skipif(XLA_REPLICAS > 1, reason="this one can")
def test_xla_on_more_replicas_than_the_runtime_can():
  with pytest.raises(UserError, match="several CPU replicas"):
    devices.set_up(devices.DeviceSettings(
        num_gpus=2, device_type="cpu", use_xla=True))


@pytest.mark.slow
def test_xla_trains_the_same(shared, tmp_path):
  """In a process of its own: TensorFlow reads the flags of XLA once."""
  done = subprocess.run(
      [sys.executable, "-c", XLA_TRAINING, str(ROOT), str(ROOT / "tests"),
       str(shared), str(tmp_path), str(XLA_REPLICAS)],
      timeout=600, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  assert done.returncode == 0, done.stdout


XLA_TRAINING = """
import pathlib
import sys
sys.path[:0] = sys.argv[1:3]
import golden_training
import numpy as np
from test_other_training import head_of
shared = pathlib.Path(sys.argv[3])
golden, checkpoint = golden_training.load(shared, "classifier_strong")
steps = golden_training.train(
    golden, checkpoint, head_of(shared, "classifier"), shared, sys.argv[4],
    int(sys.argv[5]), use_xla=True)
# XLA's own functions: a little further off than TensorFlow's kernels.
np.testing.assert_allclose(
    [step["loss"] for step in steps], golden["loss"], atol=5e-4)
np.testing.assert_allclose(
    [step["global_norm_dense"] for step in steps],
    golden["global_norm_dense"], rtol=2e-3)
"""


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="no bf16 at all")
def test_bf16_without_its_kernels(monkeypatch):
  monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
  with pytest.raises(UserError, match="remove TF_ENABLE_ONEDNN_OPTS"):
    devices.set_up(devices.DeviceSettings(
        device_type="cpu", precision=session_options.BF16))


def test_precision_that_is_not_there():
  settings = devices.DeviceSettings(device_type="cpu",
                                    precision=session_options.BF16)
  if tf.__version__.startswith("1."):
    with pytest.raises(UserError, match="needs TensorFlow 2"):
      devices.set_up(settings)
  elif not session_options._cpu_has("avx512f"):
    with pytest.raises(UserError, match="needs a CPU with AVX-512"):
      devices.set_up(settings)
  else:
    config = devices.set_up(settings).session_config
    assert config.graph_options.rewrite_options \
        .auto_mixed_precision_onednn_bfloat16 == 1
