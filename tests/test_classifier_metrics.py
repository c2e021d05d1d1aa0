"""tasks/classifier_metrics.py: scores by hand, files as Google writes them."""
import json
import math

import numpy as np
import pytest

from multigpu.errors import UserError
from tasks import classifier_metrics
from tasks.classifier_data import CLASSES, MULTI_LABEL, REGRESSION
from tasks.classifier_metrics import Losses
from tasks.classifier_processors import PROCESSORS


def one_hot(classes, num_labels):
  """Probabilities of which the given class has the largest."""
  return np.eye(num_labels, dtype=np.float32)[np.asarray(classes)] * 0.6 + 0.1


# 6 rows: 2 hits of class 1, 1 false alarm, 1 miss, 2 hits of class 0.
RIGHT = [1, 1, 1, 0, 0, 0]
PREDICTED = [1, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("task, wanted", [
    ("cola", {"accuracy": 4 / 6, "matthews": (2 * 2 - 1 * 1) / 9}),
    ("mnli", {"accuracy": 4 / 6}), ("mnli-mm", {"accuracy": 4 / 6}),
    ("mrpc", {"accuracy": 4 / 6, "f1": 4 / 6}),
    ("qnli", {"accuracy": 4 / 6}),
    ("qqp", {"accuracy": 4 / 6, "f1": 4 / 6}),
    ("rte", {"accuracy": 4 / 6}), ("sst-2", {"accuracy": 4 / 6}),
    ("wnli", {"accuracy": 4 / 6}), ("xnli", {"accuracy": 4 / 6}),
    ("tsv", {"accuracy": 4 / 6, "macro_f1": 4 / 6}),
])
def test_classes(task, wanted):
  scores = classifier_metrics.score(task, CLASSES, RIGHT, one_hot(PREDICTED, 2))
  assert scores == pytest.approx(
      {"eval_" + key: value for key, value in wanted.items()})


def test_f1_is_that_of_class_1():
  """Precision 1/1, recall 1/3 of the class "1"."""
  scores = classifier_metrics.score(
      "mrpc", CLASSES, [1, 1, 1, 0], one_hot([1, 0, 0, 0], 2))
  assert scores["eval_f1"] == pytest.approx(2 * 1 / 3 / (1 + 1 / 3))


def test_macro_f1_counts_the_classes_alike():
  """Class 0: precision 3/4, recall 1; class 1: 1, 1/2; class 2 is nowhere."""
  scores = classifier_metrics.score(
      "tsv", CLASSES, [0, 0, 0, 1, 1], one_hot([0, 0, 0, 0, 1], 3))
  assert scores["eval_macro_f1"] == pytest.approx((6 / 7 + 2 / 3) / 2)


def test_no_hits_are_zero_without_a_warning(recwarn):
  for task in ("mrpc", "cola", "tsv"):
    scores = classifier_metrics.score(task, CLASSES, [1, 1],
                                      one_hot([0, 0], 2))
    assert set(scores.values()) == {0.0}
  assert not recwarn.list


def test_the_first_of_equal_probabilities():
  scores = classifier_metrics.score("rte", CLASSES, [0, 1],
                                    [[0.5, 0.5], [0.5, 0.5]])
  assert scores == {"eval_accuracy": 0.5}


@pytest.mark.parametrize("as_column", [False, True])
def test_regression(as_column):
  """Deviations (-1.5, -.5, .5, 1.5) and (-.5, -1.5, 1.5, .5)."""
  outputs = np.array([2.0, 1.0, 4.0, 3.0], np.float32)
  scores = classifier_metrics.score(
      "sts-b", REGRESSION, [1.0, 2.0, 3.0, 4.0],
      outputs[:, np.newaxis] if as_column else outputs)
  assert scores == pytest.approx({"eval_pearson": 0.6, "eval_spearman": 0.6})


def test_spearman_looks_at_ranks():
  scores = classifier_metrics.score("sts-b", REGRESSION, [1.0, 2.0, 3.0],
                                    [1.0, 10.0, 1000.0])
  assert scores["eval_spearman"] == pytest.approx(1.0)
  assert scores["eval_pearson"] < 0.9


@pytest.mark.parametrize("right, outputs", [([1.0, 2.0], [3.0, 3.0]),
                                            ([2.0], [1.0])])
def test_correlation_of_constants(right, outputs, caplog, tmp_path):
  scores = classifier_metrics.score("sts-b", REGRESSION, right, outputs)
  assert math.isnan(scores["eval_pearson"])
  assert "not defined" in caplog.records[0].getMessage()
  classifier_metrics.write_eval_results(str(tmp_path), scores)
  assert json.loads((tmp_path / "eval_results.json").read_text()) == {
      "eval_pearson": None, "eval_spearman": None}
  assert "eval_pearson = nan\n" in (tmp_path / "eval_results.txt").read_text()


def test_several_labels():
  """Label 0: 1 hit, 1 false alarm; label 1: 1 hit, 1 miss; label 2: nothing."""
  right = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
  outputs = [[0.9, 0.5, 0.1], [0.6, 0.7, 0.1], [0.1, 0.2, 0.1], [0.1, 0.1, 0.1]]
  scores = classifier_metrics.score("tsv", MULTI_LABEL, right, outputs)
  assert scores == pytest.approx({
      "eval_accuracy": 2 / 4, "eval_macro_f1": (2 / 3 + 2 / 3 + 0) / 3,
      "eval_micro_f1": 2 * 2 / (2 * 2 + 1 + 1)})


def test_one_label_or_not():
  """Precision 1, recall 1/2; rows without the label do not count for F1."""
  scores = classifier_metrics.score(
      "tsv", MULTI_LABEL, [[1.0], [1.0], [0.0], [0.0]],
      [[0.9], [0.1], [0.1], [0.1]])
  assert scores == pytest.approx({
      "eval_accuracy": 3 / 4, "eval_macro_f1": 2 / 3,
      "eval_micro_f1": 2 / 3})


def test_each_task_has_its_metrics():
  assert set(classifier_metrics.TASK_METRICS) == set(PROCESSORS)


@pytest.mark.parametrize("right, outputs", [([0, 1], [[0.1, 0.9]]), ([], [])])
def test_rows_must_match(right, outputs):
  with pytest.raises(ValueError, match="labels, . predictions"):
    classifier_metrics.score("mrpc", CLASSES, right, outputs)


def test_outputs_that_are_no_numbers(tmp_path):
  outputs = [[0.1, 0.9], [math.nan, 0.5], [0.5, math.inf]]
  for call in (
      lambda: classifier_metrics.score("mrpc", CLASSES, [0, 1, 1], outputs),
      lambda: classifier_metrics.write_test_results(
          str(tmp_path / "test_results.tsv"), [outputs])):
    with pytest.raises(UserError, match="predictions of 2 of 3 examples are "
                       "not numbers.*row 2.*diverged"):
      call()
  assert not list(tmp_path.iterdir())
  with pytest.raises(UserError, match="losses of 1 of 2 examples"):
    classifier_metrics.mean_losses([1.0, math.nan], 8)


def test_losses_of_unequal_batches():
  rows = [1.0] * 8 + [4.0] * 3
  losses = classifier_metrics.mean_losses(rows, batch_size=8)
  assert losses.eval_loss == np.float32(20 / 11)
  assert losses.loss == np.float32(2.5)
  assert losses.loss.dtype == losses.eval_loss.dtype == np.float32
  assert classifier_metrics.mean_losses(rows, 100).loss == np.float32(20 / 11)


@pytest.mark.parametrize("rows", [[], [[1.0], [2.0]]])
def test_losses_come_one_a_row(rows):
  with pytest.raises(ValueError, match="a loss per row"):
    classifier_metrics.mean_losses(rows, 8)


@pytest.fixture
def google(shared):
  """The folder with the files of an evaluation and a prediction."""
  return shared / "golden" / "classifier_features" / "e2e"


def test_eval_results_as_google_writes_them(google, tmp_path):
  """Its numbers through our formatting give its file."""
  wanted = (google / "eval_results.txt").read_text()
  numbers = dict(line.split(" = ") for line in wanted.split("\n") if line)
  results = classifier_metrics.collect_results(
      {"eval_accuracy": 9 / 11},
      Losses(np.float32(numbers["eval_loss"]), np.float32(numbers["loss"])),
      np.int64(0))
  classifier_metrics.write_eval_results(str(tmp_path), results)
  assert (tmp_path / "eval_results.txt").read_text() == wanted
  values = json.loads((tmp_path / "eval_results.json").read_text())
  assert list(values) == sorted(values)
  assert values == {"eval_accuracy": 9 / 11, "global_step": 0,
                    "eval_loss": float(numbers["eval_loss"]),
                    "loss": float(numbers["loss"])}


def test_lines_are_sorted_with_those_of_the_task():
  results = classifier_metrics.collect_results(
      {"eval_accuracy": 1.0, "eval_f1": 2 / 3},
      Losses(np.float32(0.1), np.float32(1e-5)), 12)
  assert classifier_metrics.format_eval_results(results) == (
      "eval_accuracy = 1.0\neval_f1 = 0.6666667\neval_loss = 0.1\n"
      "global_step = 12\nloss = 1e-05\n")


def test_test_results_as_google_writes_them(google, tmp_path):
  wanted = (google / "test_results.tsv").read_text()
  rows = np.array([[np.float32(cell) for cell in line.split("\t")]
                   for line in wanted.split("\n") if line])
  path = tmp_path / "test_results.tsv"
  num_lines = classifier_metrics.write_test_results(
      str(path), iter([rows[:4], rows[4:8], rows[8:]]))
  assert num_lines == 11
  assert path.read_text() == wanted


def test_test_results_of_a_regression(tmp_path):
  path = tmp_path / "test_results.tsv"
  for batch in ([2.5, 1e-7], [[2.5], [1e-7]]):
    assert classifier_metrics.write_test_results(str(path), [batch]) == 2
    assert path.read_text() == "2.5\n1e-07\n"
