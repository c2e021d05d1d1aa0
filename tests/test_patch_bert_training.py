"""Training in a patched checkout: made-up scripts on one and two replicas."""
import json
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import made_up_bert
import modeling
from conftest import ROOT

TOOL = ROOT / "scripts" / "patch_bert.sh"


def write_checkpoint(prefix):
  """Saves random weights of the made-up script's model."""
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(1)
    modeling.BertModel(
        modeling.BertConfig(20, 8, 1, 2, 16, "gelu", 0.0, 0.0, 8, 2),
        is_training=False, input_ids=tf.zeros([1, 6], tf.int32))
    tf.get_variable("cls/squad/output_weights", [8])
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, prefix)


def weights_of(folder):
  reader = tf.train.load_checkpoint(str(folder))
  return {name: reader.get_tensor(name)
          for name in reader.get_variable_to_shape_map()}


def losses_of(folder):
  """The loss of each training step, from the TensorBoard files."""
  path, = folder.glob("events.out.tfevents.*")
  return {event.step: value.simple_value
          for event in tf.train.summary_iterator(str(path))
          for value in event.summary.value if value.tag == "loss"}


@pytest.mark.once("tf1")
@pytest.mark.slow
def test_two_replicas_train_as_one_device(tmp_path):
  checkout = made_up_bert.write(tmp_path / "bert")
  start = str(checkout / "start.ckpt")
  write_checkpoint(start)
  subprocess.check_call(["bash", str(TOOL), str(checkout)])
  # Unchanged, through TPUEstimator.
  one = made_up_bert.run(checkout, made_up_bert.RUN_SQUAD, "one",
                         init_checkpoint=start)
  two = made_up_bert.run(
      checkout, made_up_bert.with_all_edits(made_up_bert.RUN_SQUAD), "two",
      init_checkpoint=start, num_gpus=2, train_batch_size=4)
  losses = losses_of(one)
  assert sorted(losses) == [1, 2, 3, 4, 5, 6]
  np.testing.assert_allclose(
      [losses_of(two)[step] for step in sorted(losses)],
      [losses[step] for step in sorted(losses)], rtol=1e-5)

  expected, actual = weights_of(one), weights_of(two)
  assert set(actual) == set(expected)
  assert "bert/embeddings/word_embeddings/adam_m" in expected
  for name, value in expected.items():
    np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=2e-6,
                               err_msg=name)
  # It moved, and from the checkpoint that was named.
  table = "bert/embeddings/word_embeddings"
  moved = np.abs(expected[table] - weights_of(start)[table]).max()
  assert 1e-3 < moved < 0.1

  results = [json.loads((folder / "result.json").read_text())
             for folder in (one, two)]
  for key in ("eval_loss", "eval_accuracy", "global_step", "logits"):
    np.testing.assert_allclose(results[1][key], results[0][key], rtol=1e-4,
                               atol=1e-5, err_msg=key)
  assert len(results[1]["logits"]) == 11
