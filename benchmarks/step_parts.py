"""What each choice in the training step is worth.

    .venv/tf2/bin/python benchmarks/step_parts.py --bert_config_file FILE

One part at a time is put back into its straightforward form; the last line
leaves something out, which shows what it costs. All steps live in one process
and take turns. The figures are ratios to the step as it is.
"""
import argparse
import contextlib
import pathlib
import statistics
import sys
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# After the path, and multigpu before TensorFlow: it asks for oneDNN's kernels.
# ruff: noqa: E402
import multigpu  # noqa: F401
import tensorflow.compat.v1 as tf

import modeling
import optimization
import processes
from step_rows import make_rows, time_steps
from train_step import build_step, count_ops


def gelu_with_pow(x):
  """The formula as it is printed in the paper."""
  cubed = tf.pow(x, 3)
  return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * cubed)))


def layer_norm_of_library_calls(input_tensor, name=None):
  """moments and batch_normalization."""
  width = input_tensor.shape.as_list()[-1]
  with tf.variable_scope(name, default_name="LayerNorm"):
    beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(input_tensor, [-1], keepdims=True)
    return tf.nn.batch_normalization(
        input_tensor, mean, variance, beta, gamma, modeling.LAYER_NORM_EPSILON)


def mask_for_each_position(attend):
  """Attention whose mask is [B, F, T] instead of [B, 1, T]."""
  def attention_layer(*args, attention_mask, from_seq_length, **kwargs):
    ones = tf.ones([1, from_seq_length, 1], tf.float32)
    return attend(*args, attention_mask=attention_mask * ones,
                  from_seq_length=from_seq_length, **kwargs)
  return attention_layer


def look_up_in_variable(input_ids, vocab_size, embedding_size,
                        initializer_range, word_embedding_name,
                        use_one_hot_embeddings):
  """A gather from the variable instead of its value."""
  del use_one_hot_embeddings
  table = tf.get_variable(
      word_embedding_name, [vocab_size, embedding_size],
      initializer=modeling.create_initializer(initializer_range))
  return tf.gather(table, input_ids), table


def update_in_small_operations(self, var, grad, m, v):
  """AdamW, an operation of the graph for each of the formula."""
  next_m = self.beta_1 * m + (1.0 - self.beta_1) * grad
  next_v = self.beta_2 * v + (1.0 - self.beta_2) * tf.square(grad)
  update = next_m / (tf.sqrt(next_v) + self.epsilon)
  if not self._is_excluded(var.name):
    update += self.weight_decay_rate * var
  return tf.group(tf.assign(var, var - self.learning_rate * update),
                  tf.assign(m, next_m), tf.assign(v, next_v))


def variants():
  """{name: (patch, keep dropout)}."""
  def patch(owner, name, value):
    return lambda: mock.patch.object(owner, name, value)

  def nothing():
    return contextlib.ExitStack()

  return {
      "as it is": (nothing, True),
      "gelu with pow": (patch(modeling, "gelu", gelu_with_pow), True),
      "layer norm of library calls": (
          patch(modeling, "layer_norm", layer_norm_of_library_calls), True),
      "mask for each position": (
          patch(modeling, "attention_layer",
                mask_for_each_position(modeling.attention_layer)), True),
      "gather from the variable": (
          patch(modeling, "embedding_lookup", look_up_in_variable), True),
      "AdamW in small operations": (
          patch(optimization.AdamWeightDecayOptimizer, "_update",
                update_in_small_operations), True),
      "without dropout": (nothing, False),
  }


class Step:
  """A training step in a graph and a session of its own."""

  def __init__(self, config_file, batch, seq_length, patch, keep_dropout):
    config = modeling.BertConfig.from_json_file(config_file)
    if not keep_dropout:
      config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    rows = make_rows(batch, seq_length, config.vocab_size)
    with tf.Graph().as_default(), patch():
      self._train_op = build_step(modeling, optimization, config, rows)
      self._session = tf.Session()
      self._session.run(tf.global_variables_initializer())
    self.num_ops = count_ops(self._session, self._train_op)
    self.seconds = []

  def run(self):
    """Runs it twice and keeps [wall, CPU] seconds of the second time."""
    # The first one finds the caches full of another step's weights.
    self.seconds += time_steps(lambda: self._session.run(self._train_op), 1)


def main():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bert_config_file", required=True)
  parser.add_argument("--batch", type=int, default=8)
  parser.add_argument("--seq_length", type=int, default=128)
  parser.add_argument("--runs", type=int, default=5)
  parser.add_argument("--json", help="write the figures to this file")
  arguments = parser.parse_args()
  steps = {
      name: Step(arguments.bert_config_file, arguments.batch,
                 arguments.seq_length, *variant)
      for name, variant in variants().items()}
  for _ in range(arguments.runs):
    for step in steps.values():
      step.run()
  print("%-30s %6s %8s %8s %11s %10s" % (
      "a step", "ops", "wall s", "CPU s", "ratio wall", "ratio CPU"))
  results, base = {}, None
  for name, step in steps.items():
    wall, cpu = (statistics.median(column) for column in zip(*step.seconds))
    base = base or (wall, cpu)
    print("%-30s %6d %8.3f %8.3f %11.2f %10.2f" % (
        name, step.num_ops, wall, cpu, wall / base[0], cpu / base[1]))
    results[name] = {"ops": step.num_ops, "wall_s": wall, "cpu_s": cpu}
  processes.write_json(arguments.json, results)


if __name__ == "__main__":
  main()
