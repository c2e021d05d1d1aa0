"""A made-up checkout with the layout of Google's BERT, for the patch tool.

The files are self-written and short. What counts is that the lines that need
edits are there, in the shape that docs/patching.md shows.
"""
import os
import re
import shutil
import subprocess
import sys

from conftest import ROOT

PAGE = (ROOT / "docs" / "patching.md").read_text(encoding="utf-8")

# Plain gradient descent in place of Google's optimizer.
OPTIMIZATION = '''\
import tensorflow.compat.v1 as tf


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu):
  del num_train_steps, num_warmup_steps, use_tpu
  return tf.train.GradientDescentOptimizer(init_lr).minimize(
      loss, tf.train.get_or_create_global_step())
'''

RUN_SQUAD = '''\
"""Finds the place of the largest id of a row."""
import json
import os

import numpy as np
import tensorflow as tf

import modeling
import optimization

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "Where everything goes.")
flags.DEFINE_string("init_checkpoint", None, "Where the weights come from.")
flags.DEFINE_integer("train_batch_size", 8, "Rows of a training step.")
flags.DEFINE_integer("eval_batch_size", 4, "Rows of an evaluation step.")
flags.DEFINE_integer("predict_batch_size", 4, "Rows of a prediction step.")
flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps in between.")
flags.DEFINE_float("learning_rate", 0.002, "The highest learning rate.")
flags.DEFINE_float("num_train_epochs", 3.0, "Times that each row is seen.")
flags.DEFINE_bool("use_tpu", False, "Whether there is a TPU.")
flags.DEFINE_integer("num_tpu_cores", 8, "Number of TPU cores.")


def read_examples(count):
  return np.random.RandomState(count).randint(0, 20, [count, 6])


def input_fn_builder(examples, is_training):
  def input_fn(params):
    rows = tf.data.Dataset.from_tensor_slices({
        "input_ids": examples.astype(np.int32),
        "label_ids": examples.argmax(axis=1).astype(np.int32)})
    if is_training:
      rows = rows.repeat()
    return rows.batch(params["batch_size"], drop_remainder=is_training)
  return input_fn


def model_fn_builder(bert_config, init_checkpoint, learning_rate,
                     num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings):
  def model_fn(features, labels, mode, params):
    del labels, params
    label_ids = features["label_ids"]
    model = modeling.BertModel(
        bert_config, mode == tf.estimator.ModeKeys.TRAIN,
        features["input_ids"], use_one_hot_embeddings=use_one_hot_embeddings)
    with tf.variable_scope("cls/squad"):
      weights = tf.get_variable("output_weights", [bert_config.hidden_size])
    logits = tf.reduce_sum(model.get_sequence_output() * weights, axis=2)
    per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=label_ids, logits=logits)
    total_loss = tf.reduce_mean(per_example_loss)

    scaffold_fn = None
    if init_checkpoint:
      assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
          tf.trainable_variables(), init_checkpoint)
      if use_tpu:
        def tpu_scaffold():
          tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
          return tf.train.Scaffold()
        scaffold_fn = tpu_scaffold
      else:
        tf.train.init_from_checkpoint(init_checkpoint, assignment_map)

    if mode == tf.estimator.ModeKeys.TRAIN:
      train_op = optimization.create_optimizer(
          total_loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu)
      output_spec = tf.contrib.tpu.TPUEstimatorSpec(
          mode=mode, loss=total_loss, train_op=train_op,
          scaffold_fn=scaffold_fn)
    elif mode == tf.estimator.ModeKeys.EVAL:
      def metric_fn(losses, label_ids, logits):
        return {
            "eval_loss": tf.metrics.mean(losses),
            "eval_accuracy": tf.metrics.accuracy(
                label_ids, tf.argmax(logits, axis=1))}
      eval_metrics = (metric_fn, [per_example_loss, label_ids, logits])
      output_spec = tf.contrib.tpu.TPUEstimatorSpec(
          mode=mode, loss=total_loss, eval_metrics=eval_metrics,
          scaffold_fn=scaffold_fn)
    else:
      predictions = {"logits": logits}
      output_spec = tf.contrib.tpu.TPUEstimatorSpec(
          mode=mode, predictions=predictions, scaffold_fn=scaffold_fn)
    return output_spec
  return model_fn


def main(_):
  run_config = tf.contrib.tpu.RunConfig(
      model_dir=FLAGS.output_dir,
      save_checkpoints_steps=FLAGS.save_checkpoints_steps,
      tpu_config=tf.contrib.tpu.TPUConfig(num_shards=FLAGS.num_tpu_cores))
  train_examples = read_examples(16)
  num_train_steps = int(
      len(train_examples) * FLAGS.num_train_epochs / FLAGS.train_batch_size)
  model_fn = model_fn_builder(
      bert_config=modeling.BertConfig(20, 8, 1, 2, 16, "gelu", 0.0, 0.0, 8, 2),
      init_checkpoint=FLAGS.init_checkpoint,
      learning_rate=FLAGS.learning_rate,
      num_train_steps=num_train_steps,
      num_warmup_steps=1,
      use_tpu=FLAGS.use_tpu,
      use_one_hot_embeddings=FLAGS.use_tpu)
  estimator = tf.contrib.tpu.TPUEstimator(
      use_tpu=FLAGS.use_tpu,
      model_fn=model_fn,
      config=run_config,
      train_batch_size=FLAGS.train_batch_size,
      eval_batch_size=FLAGS.eval_batch_size,
      predict_batch_size=FLAGS.predict_batch_size)
  estimator.train(input_fn=input_fn_builder(train_examples, True),
                  max_steps=num_train_steps)
  dev_input_fn = input_fn_builder(read_examples(11), False)
  result = {key: float(value) for key, value in
            estimator.evaluate(input_fn=dev_input_fn).items()}
  result["logits"] = [row["logits"].tolist()
                      for row in estimator.predict(input_fn=dev_input_fn)]
  with open(os.path.join(FLAGS.output_dir, "result.json"), "w") as writer:
    json.dump(result, writer)


if __name__ == "__main__":
  flags.mark_flag_as_required("output_dir")
  tf.app.run()
'''

# Takes the flags and the model of the other script, as Google's
# run_classifier_with_tfhub.py does.
RUN_OTHER = '''\
import run_squad
import tensorflow as tf


def main(_):
  estimator = tf.contrib.tpu.TPUEstimator(model_fn=run_squad.model_fn_builder())
'''


def write(folder):
  """Makes the checkout in an empty or missing folder and returns the folder."""
  folder.mkdir(exist_ok=True)
  shutil.copy(str(ROOT / "modeling.py"), str(folder))
  (folder / "optimization.py").write_text(OPTIMIZATION)
  (folder / "run_squad.py").write_text(RUN_SQUAD)
  (folder / "run_with_other.py").write_text(RUN_OTHER)
  return folder


def snapshot(folder):
  """Mode and bytes of each file in a folder, by name."""
  return {path.name: (path.stat().st_mode, path.read_bytes())
          if path.is_file() else path.stat().st_mode
          for path in folder.iterdir()}


def replace(text, before, after):
  """Replaces a block of lines, which may stand indented in the text."""
  first = before.splitlines()[0]
  indents = re.findall(r"^( *)%s$" % re.escape(first), text, re.M)
  for indent in indents:
    old, new = (re.sub("^(?=.)", indent, block, flags=re.M)
                for block in (before, after))
    if "\n" + old in text:
      assert text.count("\n" + old) == 1, "twice in the script:\n" + before
      return text.replace("\n" + old, "\n" + new)
  raise AssertionError("not in the script:\n" + before)


def with_all_edits(script):
  """A script with the edits of docs/patching.md: each before, its after."""
  for section in re.split(r"^## ", PAGE, flags=re.M):
    labels = re.findall(
        r"(before|after):\n\n```python\n(.*?)^```$", section,
        flags=re.S | re.M | re.I)
    for (first, before), (second, after) in zip(labels[::2], labels[1::2]):
      assert (first.lower(), second.lower()) == ("before", "after")
      script = replace(script, before, after)
  return script


def run(folder, script, output, **flags):
  """Runs a script of the checkout on the CPU, on either TensorFlow.

  Args:
    folder: the checkout.
    script: text of the script, made for TensorFlow 1.15 and GPUs.
    output: name of the output folder.
    **flags: flags of the script.

  Returns:
    The output folder, a pathlib.Path.
  """
  for before, after in (
      ("import tensorflow as tf", "import tensorflow.compat.v1 as tf"),
      # What is under tf.contrib.tpu in TensorFlow 1 exists here in both.
      ("tf.contrib.tpu.", "tf.estimator.tpu."),
      ("    model_dir=FLAGS.output_dir,",
       "    model_dir=FLAGS.output_dir, save_summary_steps=1,\n"
       "    session_config=tf.ConfigProto(device_count={'CPU': 2}),")):
    script = script.replace(before, after)
  path = folder / (output + ".py")
  path.write_text(script.replace('"/gpu:', '"/cpu:'))
  done = subprocess.run(
      [sys.executable, path.name, "--output_dir=" + output] +
      ["--%s=%s" % item for item in sorted(flags.items())],
      cwd=str(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      text=True, timeout=300, env=dict(
          os.environ, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2"))
  assert done.returncode == 0, done.stdout[-5000:]
  return folder / output
