"""What evaluations during a training leave behind; without any training."""
import json
import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import evaluation
from multigpu import interruption
from multigpu.errors import UserError
from tasks import classifier_data
from tasks import classifier_metrics
from tasks import pretraining_metrics
from tasks import squad_metrics


def save_weights(path):
  """Stands for the weights of a step."""
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("w", [3], initializer=tf.ones_initializer())
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path, write_meta_graph=False,
                          write_state=False)


def make(folder, values, first_step=0, metric="loss", patience=0,
         more_is_better=False):
  """An Evaluator for steps of 10; `values` = {step: value}."""
  return evaluation.Evaluator(
      str(folder), evaluation.EvaluationSettings(10, metric, patience),
      {metric or "loss": more_is_better},
      lambda _, step: {metric or "loss": np.float32(values[step])}, first_step)


def read(path):
  return json.loads(path.read_text())


@pytest.mark.parametrize("values, more_is_better, count", [
    ([], True, 0), ([0.5], True, 0), ([0.5, 0.7, 0.6, 0.7], True, 2),
    ([0.5, 0.7, 0.6, 0.7], False, 3), ([3.0, 2.0, 1.0], False, 0),
    ([None, 0.1, None], True, 1), ([None, math.nan], True, 2)])
def test_evaluations_without_gain(values, more_is_better, count):
  assert evaluation.num_without_gain(values, more_is_better) == count


def test_the_lowest_loss_is_kept_and_files_are_replaced(tmp_path):
  evaluator = make(tmp_path, {10: 0.5, 20: 0.25, 30: 0.75})
  for step, best in ((10, 10), (20, 20), (30, 20)):
    evaluator.evaluate(step, save_weights)
    assert read(tmp_path / "best" / "best.json")["step"] == best
    assert tf.train.latest_checkpoint(str(tmp_path / "best")).endswith(
        "model.ckpt-%d" % best)
  assert len(list((tmp_path / "best").iterdir())) == 4
  assert [entry["loss"] for entry in read(
      tmp_path / "evaluations.json")["evaluations"]] == [0.5, 0.25, 0.75]


def test_without_a_metric_nothing_is_kept(tmp_path):
  evaluator = make(tmp_path, {10: 0.5}, metric="")
  evaluator.evaluate(10, save_weights)
  assert [path.name for path in tmp_path.iterdir()] == ["evaluations.json"]
  assert not evaluator.is_over()


def test_a_value_that_is_not_a_number_is_never_the_best(tmp_path):
  evaluator = make(tmp_path, {10: math.nan, 20: 0.5}, patience=1)
  evaluator.evaluate(10, save_weights)
  assert not (tmp_path / "best").exists()
  assert evaluator.is_over()
  assert read(tmp_path / "evaluations.json")["evaluations"] == [
      {"loss": None, "step": 10}]
  evaluator.evaluate(20, save_weights)
  assert read(tmp_path / "best" / "best.json")["value"] == 0.5


def test_what_is_due():
  evaluator = make("/nowhere", {})
  due = [step for step in range(36) if evaluator.is_due(step, last_step=35)]
  assert due == [10, 20, 30, 35]


def test_a_later_start_forgets_what_comes_again(tmp_path):
  """Killed after step 30, with a checkpoint of step 20."""
  values = {10: 0.5, 20: 0.6, 30: 0.4}
  first = make(tmp_path, values, patience=2)
  for step in values:
    first.evaluate(step, save_weights)
  second = make(tmp_path, values, first_step=20, patience=2)
  assert not second.is_due(20, 100) and second.is_due(30, 100)
  assert not second.is_over()
  second.evaluate(30, save_weights)
  assert read(tmp_path / "best" / "best.json")["step"] == 30
  assert len(read(tmp_path / "evaluations.json")["evaluations"]) == 3


def test_a_new_training_replaces_the_best_of_an_old_one(tmp_path):
  make(tmp_path, {20: 0.1}).evaluate(20, save_weights)
  evaluator = make(tmp_path, {10: 0.5, 20: 0.4})
  for step, value in ((10, 0.5), (20, 0.4)):
    evaluator.evaluate(step, save_weights)
    best = read(tmp_path / "best" / "best.json")
    assert best["step"] == step
    assert best["value"] == pytest.approx(value)
  assert len(list((tmp_path / "best").iterdir())) == 4


@pytest.mark.parametrize("broken", ["write_state", "write_text_atomically"])
def test_a_kill_leaves_whole_best_weights(tmp_path, monkeypatch, broken):
  """Before and after the new weights are named; then the same again."""
  values = {10: 0.5, 20: 0.25}
  make(tmp_path, values).evaluate(10, save_weights)

  def killed(path, *_):
    if "best" in path:
      raise KeyboardInterrupt
    return original(path, *_)

  module = (evaluation.checkpoints if broken == "write_state" else evaluation)
  original = getattr(module, broken)
  monkeypatch.setattr(module, broken, killed)
  with pytest.raises(KeyboardInterrupt):
    make(tmp_path, values, first_step=10).evaluate(20, save_weights)
  monkeypatch.undo()
  path = tf.train.latest_checkpoint(str(tmp_path / "best"))
  assert tf.train.load_variable(path, "w").tolist() == [1, 1, 1]
  again = make(tmp_path, values, first_step=10)
  assert again.is_due(20, 100)
  again.evaluate(20, save_weights)
  assert read(tmp_path / "best" / "best.json")["step"] == 20
  assert len(list((tmp_path / "best").iterdir())) == 4


def test_a_signal_ends_the_evaluation_and_then_the_training(tmp_path):
  def score(folder, step):
    del folder, step
    raise interruption.Interruption(15)

  evaluator = evaluation.Evaluator(
      str(tmp_path), evaluation.EvaluationSettings(1), {"loss": False}, score,
      0)
  hook = evaluation.EvaluationHook(evaluator, 5)
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    tf.get_variable("w", [3])
    train_op = step.assign_add(1)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
      session.run(train_op)
      assert session.should_stop()
  assert evaluator.is_due(1, 5)


def test_wrong_metrics_are_refused(tmp_path):
  with pytest.raises(UserError, match="keep_best=f2, wanted one of exact, f1"):
    evaluation.check_metric("f2", squad_metrics.list_metrics(False))
  evaluation.check_metric("", {})
  make(tmp_path, {10: 0.5}).evaluate(10, save_weights)
  evaluation.check_best(str(tmp_path), "loss", must_exist=True)
  with pytest.raises(UserError, match="the best weights by loss"):
    evaluation.check_best(str(tmp_path), "f1", must_exist=False)
  with pytest.raises(UserError, match="holds no best weights"):
    evaluation.check_best(str(tmp_path / "none"), "f1", must_exist=True)


@pytest.mark.parametrize("task", sorted(classifier_metrics.TASK_METRICS))
def test_classifier_metrics_are_those_of_an_evaluation(task):
  kind = (classifier_data.REGRESSION if task == "sts-b"
          else classifier_data.CLASSES)
  check_classifier(task, kind)


@pytest.mark.parametrize("kind", [
    classifier_data.CLASSES, classifier_data.REGRESSION,
    classifier_data.MULTI_LABEL])
def test_metrics_of_own_data(kind):
  check_classifier("tsv", kind)


def check_classifier(task, kind):
  outputs = np.array([[0.9, 0.1], [0.2, 0.8]])
  labels = np.array([0, 1])
  if kind == classifier_data.REGRESSION:
    outputs = outputs[:, :1]
  elif kind == classifier_data.MULTI_LABEL:
    labels = np.eye(2)
  scores = classifier_metrics.score(task, kind, labels, outputs)
  metrics = classifier_metrics.list_metrics(task, kind)
  assert set(metrics) == set(scores) | {"eval_loss", "loss"}
  assert [name for name, more in sorted(metrics.items()) if not more] == [
      "eval_loss", "loss"]


def test_pretraining_metrics_are_those_of_an_evaluation():
  batch = {name: np.ones(2) for name in (
      "masked_lm_loss", "masked_lm_weight", "masked_lm_correct",
      "next_sentence_loss", "next_sentence_correct")}
  assert set(pretraining_metrics.evaluate([batch])) == set(
      pretraining_metrics.METRICS)
  assert {name for name, more in pretraining_metrics.METRICS.items()
          if more} == {"masked_lm_accuracy", "next_sentence_accuracy"}


def test_squad_metrics_are_those_of_an_evaluation(tmp_path):
  path = tmp_path / "dev.json"
  path.write_text(json.dumps({"data": [{"paragraphs": [{
      "context": "a b", "qas": [
          {"id": "1", "question": "q", "answers": [{"text": "a"}]},
          {"id": "2", "question": "q", "answers": [],
           "is_impossible": True}]}]}]}))
  scores = squad_metrics.evaluate(
      str(path), {"1": "a", "2": ""}, {"1": -1.0, "2": 1.0}, True)
  assert set(squad_metrics.list_metrics(True)) <= set(scores)
  assert all(squad_metrics.list_metrics(True).values())
  scores = squad_metrics.evaluate(str(path), {"1": "a", "2": ""})
  assert set(squad_metrics.list_metrics(False)) <= set(scores)
