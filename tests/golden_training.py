"""Trains on the batches of golden/train through the real training code."""
import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import devices as devices_lib
from multigpu import session_options
from multigpu import training
from multigpu.model_fn import ModelSettings, build_model_fn

ROWS = 8
STEPS = 6


class CaptureHook(tf.train.SessionRunHook):
  """Keeps the reported loss, learning rate and gradient norm of each step."""

  def __init__(self):
    self.steps = []

  def before_run(self, run_context):
    graph = tf.get_default_graph()
    return tf.train.SessionRunArgs({
        "loss": tf.get_collection(tf.GraphKeys.LOSSES)[-1],
        "learning_rate": graph.get_tensor_by_name("learning_rate:0"),
        "global_norm_dense": graph.get_tensor_by_name("gradient_norm:0")})

  def after_run(self, run_context, run_values):
    self.steps.append(run_values.results)


def load(shared, name):
  """Returns (arrays of a golden file, path of its first checkpoint)."""
  folder = shared / "golden" / "train"
  golden = dict(np.load(str(folder / (name + "_dense_gradients.npz"))))
  return golden, str(folder / (name + "_init.ckpt"))


def input_fn(golden, first_step=0):
  """The golden rows in order, in batches of one replica."""
  batches = {key[len("batch/"):]: value for key, value in golden.items()
             if key.startswith("batch/")}
  rows = {key: value[first_step:].reshape((-1,) + value.shape[2:])
          for key, value in batches.items()}

  def fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    return dataset.batch(params["batch_size"], drop_remainder=True)
  return fn


def train(golden, init_checkpoint, head, shared, output_dir, num_replicas,
          first_step=0, last_step=STEPS, use_xla=False, **settings):
  """Runs steps on replicas; returns what was logged, step by step.

  `settings` are those of ModelSettings.
  """
  config = modeling.BertConfig.from_json_file(
      str(shared / "golden" / "train" / "bert_config_nodropout.json"))
  devices = devices_lib.set_up(
      devices_lib.DeviceSettings(
          num_gpus=num_replicas, device_type="cpu", use_xla=use_xla,
          precision=settings.get("precision", session_options.FP32)))
  accumulation_steps = settings.get("accumulation_steps", 1)
  plan = training.TrainPlan(
      per_replica_batch_size=ROWS // num_replicas // accumulation_steps,
      num_replicas=num_replicas, accumulation_steps=accumulation_steps,
      num_train_steps=int(golden["num_train_steps"]),
      num_warmup_steps=int(golden["num_warmup_steps"]))
  capture = CaptureHook()
  training.train(
      build_model_fn(head, ModelSettings(
          bert_config=config,
          init_checkpoint=None if first_step else init_checkpoint,
          learning_rate=float(golden["init_lr"]),
          num_train_steps=plan.num_train_steps,
          num_warmup_steps=plan.num_warmup_steps, **settings)),
      input_fn(golden, first_step), devices, plan,
      training.RunSettings(output_dir),
      extra_hooks=[capture, tf.train.StopAtStepHook(last_step=last_step)])
  return capture.steps


def check_steps(golden, steps, first_step=0):
  """Compares losses, rates and norms, with the tolerances of the README."""
  for t, step in enumerate(steps, first_step):
    np.testing.assert_allclose(step["loss"], golden["loss"][t], atol=5e-6,
                               rtol=1e-6)
    np.testing.assert_allclose(step["learning_rate"],
                               golden["learning_rate"][t], atol=3e-10, rtol=0)
    np.testing.assert_allclose(step["global_norm_dense"],
                               golden["global_norm_dense"][t], rtol=1e-5)


def check_checkpoint(golden, output_dir, strong):
  """Compares all weights and slots, and that there are no other names."""
  path = tf.train.latest_checkpoint(output_dir)
  reader = tf.train.load_checkpoint(path)
  names = set(reader.get_variable_to_shape_map())
  wanted = {"global_step"}
  for key, value in golden.items():
    kind, _, name = key.partition("/")
    if kind == "final":
      wanted.add(name)
      atol, rtol = (3e-5 if strong else 2e-6), 0
    elif kind in ("adam_m", "adam_v"):
      name += "/" + kind
      wanted.add(name)
      atol, rtol = (3e-7, 0) if kind == "adam_m" else (1e-9, 2e-5)
    else:
      continue
    np.testing.assert_allclose(reader.get_tensor(name), value, atol=atol,
                               rtol=rtol, err_msg=name)
  assert names == wanted
  assert reader.get_tensor("global_step") == STEPS
