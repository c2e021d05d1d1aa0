"""Random weights, dropout and checkpoints under the one model_fn."""
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from multigpu import checkpoints
from multigpu import devices as devices_lib
from multigpu import inference
from multigpu import model_fn
from multigpu.errors import UserError
from multigpu.head import HeadOutput, WeightedMean
from multigpu.model_fn import ModelSettings, build_model_fn
import replicas
from tasks.classifier_head import make_classifier_head

CONFIG = modeling.BertConfig(
    vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=8, max_position_embeddings=8)


def pooled_head(model, features, mode):
  """Predicts the pooled output and the number of the row."""
  del mode
  return HeadOutput({"row": features["row"],
                     "pooled": model.get_pooled_output()})


def rows_input_fn(num_rows, padded):
  ids = np.arange(padded * 4).reshape(padded, 4) % 9
  features = {"input_ids": ids.astype(np.int32),
              "input_mask": np.ones([padded, 4], np.int32),
              "segment_ids": np.zeros([padded, 4], np.int32),
              "row": np.arange(padded, dtype=np.int32)}
  del num_rows
  return lambda params: tf.data.Dataset.from_tensor_slices(features).batch(
      params["batch_size"], drop_remainder=True)


def predict(num_rows, num_replicas, batch_size, **settings):
  devices = devices_lib.set_up(devices_lib.DeviceSettings(num_replicas, "cpu"))
  padded = num_rows + -num_rows % (num_replicas * batch_size)
  batches = list(inference.iterate_predictions(
      build_model_fn(pooled_head, ModelSettings(CONFIG, **settings)),
      rows_input_fn(num_rows, padded), devices, inference.InferenceSettings(
          num_rows=num_rows, per_replica_batch_size=batch_size, title=None)))
  return {name: np.concatenate([batch[name] for batch in batches])
          for name in batches[0]}


@pytest.mark.parametrize("num_rows, num_replicas, batch_size", [
    (11, 1, 4), (11, 2, 4), (11, 3, 4), (1, 2, 4), (8, 2, 4), (9, 4, 1)])
def test_every_row_once_in_order(num_rows, num_replicas, batch_size):
  one = predict(num_rows, 1, num_rows, seed=5)
  many = predict(num_rows, num_replicas, batch_size, seed=5)
  assert list(many["row"]) == list(range(num_rows))
  # The random weights are those of one replica, too.
  np.testing.assert_allclose(many["pooled"], one["pooled"], atol=1e-6)


def test_seed_changes_the_random_weights():
  a, b = (predict(2, 1, 2, seed=seed)["pooled"] for seed in (1, 2))
  assert np.abs(a - b).max() > 1e-4


def dropout_of_replicas(seed):
  """What a dropout layer lets through on each of two replicas."""
  devices = devices_lib.set_up(devices_lib.DeviceSettings(2, "cpu"))
  with tf.Graph().as_default(), devices.strategy.scope():
    tf.set_random_seed(seed)
    masks = devices.strategy.extended.call_for_each_replica(
        lambda: modeling.dropout(tf.ones([100]), 0.5))
    with tf.Session(config=devices.session_config) as session:
      return session.run(devices.strategy.experimental_local_results(masks))


def test_dropout_differs_between_replicas_and_repeats():
  first, second = dropout_of_replicas(1)
  assert (first != second).any()
  again = dropout_of_replicas(1)
  np.testing.assert_array_equal(again[0], first)
  np.testing.assert_array_equal(again[1], second)
  assert (dropout_of_replicas(2)[0] != first).any()


def checkpoint_of(path, **variables):
  with tf.Graph().as_default(), tf.Session() as session:
    for name, value in variables.items():
      tf.get_variable(name, initializer=tf.constant(value))
    session.run(tf.global_variables_initializer())
    return tf.train.Saver().save(session, str(path))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
  path = checkpoint_of(tmp_path / "other", w=[1.0])
  with pytest.raises(UserError, match="none of the model's 23 variables"):
    predict(2, 1, 2, init_checkpoint=path)


def test_all_wrong_shapes_are_named(tmp_path):
  path = checkpoint_of(tmp_path / "c", **{
      "bert/pooler/dense/bias": [1.0],
      "bert/pooler/dense/kernel": [[1.0]]})
  with pytest.raises(UserError) as error:
    predict(2, 1, 2, init_checkpoint=path)
  assert "bias: [1] in the checkpoint, [8] in the model" in str(error.value)
  assert "kernel: [1, 1] in the checkpoint, [8, 8]" in str(error.value)


def test_latest_step(tmp_path):
  assert checkpoints.latest_step(str(tmp_path)) == 0


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_case_71_the_mean_is_over_all_masked_tokens(num_replicas):
  """One masked token with a loss of 6, and 19 with a loss of 2 each."""
  totals, weights = np.float32([6.0, 38.0]), np.float32([1.0, 19.0])

  def replica():
    rows = slice(replicas.replica_id(), None, num_replicas)
    terms = [WeightedMean(tf.reduce_sum(tf.constant(totals[rows])),
                          tf.reduce_sum(tf.constant(weights[rows])))]
    return {"loss": model_fn._loss(terms, model_fn._global_weights(terms))}

  with tf.Graph().as_default():
    results = replicas.on_replicas(num_replicas, replica)
    with tf.Session(
        config=replicas.cpu_session_config(num_replicas)) as session:
      losses = session.run([result["loss"] for result in results])
  # 44 / 20, and not 4.0, the mean of 6 and 2.
  assert np.mean(losses) == pytest.approx(2.2)


@pytest.mark.slow
def test_operations_of_a_step_of_bert_base():
  """As many layers as BERT-Base; the number does not depend on the width."""
  config = modeling.BertConfig(
      vocab_size=9, hidden_size=24, num_hidden_layers=12,
      num_attention_heads=12, intermediate_size=24, max_position_embeddings=8)
  fn = build_model_fn(make_classifier_head(num_labels=2), ModelSettings(
      config, learning_rate=1e-4, num_train_steps=10, num_warmup_steps=1))
  devices = devices_lib.set_up(devices_lib.DeviceSettings(1, "cpu"))

  def make_train_op():
    features = {name: tf.ones([2, 8], tf.int32)
                for name in ("input_ids", "input_mask", "segment_ids")}
    features["label_ids"] = tf.zeros([2], tf.int32)
    return fn(features, None, tf.estimator.ModeKeys.TRAIN, {}).train_op

  with tf.Graph().as_default(), devices.strategy.scope(), \
      tf.Session(config=devices.session_config) as session:
    tf.train.get_or_create_global_step()
    train_op = devices.strategy.group(
        devices.strategy.extended.call_for_each_replica(make_train_op))
    session.run(tf.global_variables_initializer())
    metadata = tf.RunMetadata()
    session.run(train_op, run_metadata=metadata, options=tf.RunOptions(
        trace_level=tf.RunOptions.SOFTWARE_TRACE))
  num_ops = sum(len(device.node_stats)
                for device in metadata.step_stats.dev_stats)
  # Half of what a straightforward one executes; a trace that is empty or
  # without the layers would be below the other bound.
  assert 2000 < num_ops < 6500, num_ops
