"""Evaluations during a training, on 1 and 2 replicas of a tiny model."""
import json
import logging
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from multigpu import checkpoints
from multigpu import devices as devices_lib
from multigpu import evaluation
from multigpu import records
from multigpu import runs
from multigpu import training
import replicas  # noqa: F401  gives TensorFlow 2 several CPU devices
from tasks import classifier_data
from tasks.classifier_head import make_classifier_head

NUM_ROWS = 24
STEPS = 6
LENGTH = 8
# With dropout: evaluations must not touch the random numbers.
CONFIG = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1,
              num_attention_heads=2, intermediate_size=16,
              max_position_embeddings=LENGTH, type_vocab_size=2)
TABLE = classifier_data.record_table(LENGTH, ["0", "1"])


class Killed(BaseException):
  """Stands for a kill: nobody catches it."""


class FakeMetric:
  """Scores by a list: {step: value}; notes what was predicted."""

  def __init__(self, values, rows=None, kill_at=None):
    self.values = values
    self.rows = rows  # None = without predictions, which take their time
    self.kill_at = kill_at
    self.predicted = {}

  def scoring(self):
    return evaluation.Scoring(self.score, {"fake": True})

  def score(self, run):
    step = run.checkpoint_step()
    self.predicted[step] = self.rows and predict(run, self.rows)
    if step == self.kill_at:
      raise Killed
    return {"fake": self.values[step], "global_step": step}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
  random = np.random.RandomState(5)
  path = str(tmp_path_factory.mktemp("rows") / "rows.tf_record")
  with records.RecordWriter(path, TABLE) as writer:
    for _ in range(NUM_ROWS):
      ids = random.randint(1, 20, [LENGTH])
      writer.write({
          "input_ids": ids, "input_mask": [1] * LENGTH,
          "segment_ids": [0] * LENGTH, "label_ids": [int(ids.max() > 17)],
          "is_real_example": [1]})
  return runs.Rows(path, TABLE)


def make_run(output_dir, num_replicas, every_steps=0, patience=0, **settings):
  devices = devices_lib.set_up(
      devices_lib.DeviceSettings(num_gpus=num_replicas, device_type="cpu"))
  return runs.Run(
      devices=devices, bert_config=modeling.BertConfig(**CONFIG),
      output_dir=str(output_dir), seed=3,
      evaluations=evaluation.EvaluationSettings(
          every_steps, "fake" if every_steps else "", patience), **settings)


def train(run, rows, metric=None):
  plan = training.TrainPlan(
      per_replica_batch_size=4 // run.devices.num_replicas,
      num_replicas=run.devices.num_replicas, num_train_steps=STEPS,
      num_warmup_steps=0)
  run.train(make_classifier_head(2), rows, plan, 1e-2,
            metric.scoring() if metric else None)


def predict(run, rows):
  return np.concatenate([
      batch["probabilities"] for batch in
      run.predict(make_classifier_head(2), rows, NUM_ROWS, 4, title=None)])


def read_weights(path):
  reader = tf.train.load_checkpoint(path)
  return {name: reader.get_tensor(name)
          for name in reader.get_variable_to_shape_map()}


def compare(found, wanted):
  assert sorted(found) == sorted(wanted)
  for name, value in wanted.items():
    np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-7,
                               err_msg=name)


def read_steps(folder):
  return [entry["step"] for entry in json.loads(
      (folder / "evaluations.json").read_text())["evaluations"]]


def read_best(folder):
  return json.loads((folder / "best" / "best.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas", [
    pytest.param(1, marks=pytest.mark.once("tf1")), 2])
def test_the_best_weights_are_kept_and_the_training_is_the_same(
    rows, tmp_path, num_replicas):
  plain, evaluated = tmp_path / "plain", tmp_path / "evaluated"
  train(make_run(plain, num_replicas), rows)
  metric = FakeMetric({2: 0.5, 4: 0.75, 6: 0.75}, rows)
  run = make_run(evaluated, num_replicas, every_steps=2,
                 save_checkpoints_steps=1, keep_checkpoint_max=1)
  train(run, rows, metric)

  compare(read_weights(str(evaluated)), read_weights(str(plain)))
  assert len(list(evaluated.glob("model.ckpt-*.index"))) == 1
  assert read_steps(evaluated) == [2, 4, 6]
  assert read_best(evaluated) == {"metric": "fake", "value": 0.75, "step": 4,
                                  "checkpoint": "model.ckpt-4"}
  names = {path.name for path in (evaluated / "best").iterdir()}
  assert names == {"best.json", "checkpoint", "model.ckpt-4.index",
                   "model.ckpt-4.data-00000-of-00001"}
  assert not (evaluated / "evaluated.tmp").exists()
  # What comes after the training takes the best; a folder can be moved.
  assert run.checkpoint_step() == 4
  np.testing.assert_array_equal(predict(run, rows), metric.predicted[4])
  os.rename(str(evaluated / "best"), str(tmp_path / "moved"))
  moved = read_weights(tf.train.latest_checkpoint(str(tmp_path / "moved")))
  assert "output_weights" in moved and moved["global_step"] == 4
  assert not any("adam" in name for name in moved)
  # Points of TensorBoard at their steps.
  points = {event.step: event.summary.value[0].simple_value
            for path in (evaluated / "eval").iterdir()
            for event in tf.train.summary_iterator(str(path))
            if event.summary.value}
  assert points == {2: 0.5, 4: 0.75, 6: 0.75}


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_killed_runs_go_on_with_what_they_knew(rows, tmp_path):
  """Killed in the evaluations at 4 and 6: as if nothing had been."""
  values = {2: 0.5, 4: 0.75, 6: 0.25}
  run = make_run(tmp_path, 1, every_steps=2, save_checkpoints_steps=3)
  for kill_at, first_step, steps in ((4, 3, [2]), (6, 6, [2, 4])):
    with pytest.raises(Killed):
      train(run, rows, FakeMetric(values, kill_at=kill_at))
    assert read_steps(tmp_path) == steps
    # Estimator saves the last step before its evaluation comes.
    assert checkpoints.latest_step(str(tmp_path)) == first_step
  metric = FakeMetric(values)
  train(run, rows, metric)
  assert list(metric.predicted) == [6]
  assert read_steps(tmp_path) == [2, 4, 6]
  assert read_best(tmp_path)["step"] == 4
  assert not (tmp_path / "evaluated.tmp").exists()


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_an_early_end_stays_the_end(rows, tmp_path, caplog):
  values = {1: 0.5, 2: 0.75, 3: 0.75, 4: 0.5, 5: 1.0, 6: 0.125}
  run = make_run(tmp_path, 2, every_steps=1, patience=2)
  with caplog.at_level(logging.INFO):
    train(run, rows, FakeMetric(values))
  assert checkpoints.latest_step(str(tmp_path)) == 4
  assert "evaluation at step 2: fake 0.7500  (the best so far)" in caplog.text
  assert "Early end at step 4: 2 evaluations without a better" in caplog.text
  again = FakeMetric(values)
  train(run, rows, again)
  assert not again.predicted
  assert checkpoints.latest_step(str(tmp_path)) == 4
  # More patience: the training goes on.
  more = FakeMetric(values)
  train(make_run(tmp_path, 2, every_steps=1, patience=3), rows, more)
  assert list(more.predicted) == [5, 6]
  assert read_best(tmp_path)["step"] == 5
