"""EM/F1 by the rules of the official scripts, on numbers worked out by hand."""
import collections
import json
import logging

import pytest

from multigpu.errors import UserError
from tasks import squad_metrics


def write_squad(path, questions):
  """Writes a SQuAD file of (id, answers or None, is_impossible or None)."""
  qas = []
  for qas_id, answers, is_impossible in questions:
    qa = {"id": qas_id, "question": "?"}
    if answers is not None:
      qa["answers"] = [{"text": text, "answer_start": 0} for text in answers]
    if is_impossible is not None:
      qa["is_impossible"] = is_impossible
    qas.append(qa)
  path.write_text(json.dumps(
      {"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]}))
  return str(path)


@pytest.mark.parametrize("text, normalized", [
    ("The  Panther's, a \t dog", "panthers dog"),
    ("AN apple", "apple"),
    ("an-a", "ana"),  # Punctuation goes first, so this is no article.
    ("theatre", "theatre"),
    ("«a»", "« »"),  # Only ASCII punctuation is dropped.
    ("308分，", "308分，"),
    ("The!", ""),
    ("", "")])
def test_normalize_answer(text, normalized):
  assert squad_metrics.normalize_answer(text) == normalized


@pytest.mark.parametrize("prediction, golds, exact, f1", [
    ("the Boat", ["boat"], 1, 1.0),
    ("blue boat", ["boat"], 0, 2 * 0.5 / 1.5),
    # Two of the three "b" are common: precision 2/3, recall 2/2.
    ("b b b", ["b b"], 0, 0.8),
    # Each score has its own best gold answer.
    ("x y", ["x", "x y z", "q"], 0, 0.8),
    # Chinese text is one token between blanks.
    ("黑豹队", ["黑豹"], 0, 0.0),
    ("黑豹队", ["黑豹队"], 1, 1.0)])
def test_scores_of_both_versions(prediction, golds, exact, f1):
  for score in (squad_metrics.score_v1, squad_metrics.score_v2):
    assert score(prediction, golds).exact == exact
    assert score(prediction, golds).f1 == pytest.approx(f1, abs=1e-12)


def test_empty_texts_differ_between_versions():
  # Both empty: no common token in v1.1, equal in v2.0.
  assert squad_metrics.score_v1("the", ["a"]) == (1, 0.0)
  assert squad_metrics.score_v2("the", ["a"]) == (1, 1.0)
  assert squad_metrics.score_v2("", []) == (1, 1.0)
  assert squad_metrics.score_v2("", ["boat"]) == (0, 0.0)
  assert squad_metrics.score_v2("boat", []) == (0, 0.0)
  # A gold of which nothing is left does not count beside a real one.
  assert squad_metrics.score_v2("", ["the", "boat"]) == (0, 0.0)
  assert squad_metrics.score_v1("", ["the", "boat"]) == (1, 0.0)


def test_v1_counts_every_question(tmp_path):
  path = write_squad(tmp_path / "dev.json", [
      ("1", ["blue"], None), ("2", ["red", "red tower"], None),
      ("3", ["x"], None)])
  metrics = squad_metrics.evaluate(
      path, {"1": "the blue", "2": "tower", "3": "empty", "other": "x"})
  assert list(metrics) == ["exact", "f1", "total"]
  assert metrics["exact"] == 100.0 / 3
  assert metrics["f1"] == pytest.approx(100 * (1 + 2 / 3) / 3, abs=1e-9)
  assert metrics["total"] == 3


V2_QUESTIONS = [("h1", ["blue"], False), ("h2", ["red tower"], False),
                ("n1", [], True), ("n2", [], True), ("n3", [], True)]
V2_PREDICTIONS = {"h1": "blue", "h2": "tower", "n1": "", "n2": "x", "n3": "y"}


def test_v2_breakdown(tmp_path):
  path = write_squad(tmp_path / "dev.json", V2_QUESTIONS)
  metrics = squad_metrics.evaluate(path, V2_PREDICTIONS, None, True)
  assert list(metrics.items()) == [
      ("exact", 40.0), ("f1", pytest.approx(100 * (1 + 2 / 3 + 1) / 5)),
      ("total", 5),
      ("HasAns_exact", 50.0), ("HasAns_f1", pytest.approx(100 * (5 / 3) / 2)),
      ("HasAns_total", 2),
      ("NoAns_exact", 100.0 / 3), ("NoAns_f1", 100.0 / 3), ("NoAns_total", 3)]


def test_v2_best_threshold(tmp_path):
  path = write_squad(tmp_path / "dev.json", V2_QUESTIONS)
  # Answering nothing: 3 of 5. In order of the odds:
  #   exact: h1 4 | n2 3 | h2 3 | n3 2 | n1 2        -> best 4 at h1
  #   F1:    h1 4 | n2 3 | h2 3.67 | n3 2.67 | n1    -> best 4 at h1
  odds = {"h1": -3.0, "n2": -2.0, "h2": -1.0, "n3": 0.5, "n1": 2.0}
  metrics = squad_metrics.evaluate(path, V2_PREDICTIONS, odds, True)
  assert list(metrics)[-4:] == ["best_exact", "best_exact_thresh", "best_f1",
                                "best_f1_thresh"]
  assert [metrics[key] for key in list(metrics)[-4:]] == [80.0, -3.0, 80.0,
                                                          -3.0]
  # h2 before n2: exact stays best at h1, F1 is 3 + 1 + 2/3 at h2.
  odds["h2"] = -2.5
  metrics = squad_metrics.evaluate(path, V2_PREDICTIONS, odds, True)
  assert (metrics["best_exact"], metrics["best_exact_thresh"]) == (80.0, -3.0)
  assert metrics["best_f1"] == pytest.approx(100 * (4 + 2 / 3) / 5)
  assert metrics["best_f1_thresh"] == -2.5


def test_v2_best_threshold_does_not_punish_an_empty_prediction(tmp_path):
  path = write_squad(tmp_path / "dev.json", V2_QUESTIONS)
  odds = {"n1": -9.0, "h1": -3.0, "h2": 0.0, "n2": 1.0, "n3": 1.0}
  metrics = squad_metrics.evaluate(path, V2_PREDICTIONS, odds, True)
  assert (metrics["best_exact"], metrics["best_exact_thresh"]) == (80.0, -3.0)


def test_v2_best_threshold_of_answering_nothing(tmp_path):
  path = write_squad(tmp_path / "dev.json", V2_QUESTIONS)
  predictions = {"h1": "?", "h2": "?", "n1": "a b", "n2": "x", "n3": "y"}
  odds = dict.fromkeys(predictions, -5.0)
  metrics = squad_metrics.evaluate(path, predictions, odds, True)
  assert (metrics["best_exact"], metrics["best_exact_thresh"]) == (60.0, 0.0)
  assert metrics["exact"] == 0.0  # The predictions themselves stay as given.


def test_v2_repeated_id_counts_once(tmp_path):
  path = write_squad(tmp_path / "dev.json",
                     [("1", ["x"], False), ("1", ["y"], False)])
  metrics = squad_metrics.evaluate(path, {"1": "y"}, None, True)
  assert (metrics["exact"], metrics["total"]) == (100.0, 1)
  metrics = squad_metrics.evaluate(path, {"1": "y"})
  assert (metrics["exact"], metrics["total"]) == (50.0, 2)


def test_v2_without_one_kind_has_no_keys_for_it(tmp_path):
  path = write_squad(tmp_path / "dev.json", [("1", ["x"], False)])
  metrics = squad_metrics.evaluate(path, {"1": "x"}, None, True)
  assert "HasAns_total" in metrics
  assert "NoAns_total" not in metrics


def test_missing_predictions_and_odds_are_errors(tmp_path):
  path = write_squad(tmp_path / "dev.json", V2_QUESTIONS)
  with pytest.raises(UserError, match="no prediction for 4 of 5 .*h2, n1"):
    squad_metrics.evaluate(path, {"h1": "x"}, None, True)
  with pytest.raises(UserError, match="no null odds for 1 of 5 .*n3"):
    squad_metrics.evaluate(
        path, V2_PREDICTIONS, dict.fromkeys(["h1", "h2", "n1", "n2"], 0.0),
        True)


@pytest.mark.parametrize("questions, v1, v2", [
    ([("1", ["x"], None), ("2", ["y"], None)], True, True),
    ([("1", ["x"], None), ("2", None, None)], False, False),
    ([("1", None, None)], False, False),
    ([("1", [], None), ("2", [], None)], False, False),  # Taken out.
    ([("1", ["x"], None), ("2", [], None)], False, True),
    ([("1", ["x"], False), ("2", [], True)], True, True),
    ([("1", [], True)], True, True),
    ([], False, False)])
def test_has_answers(tmp_path, questions, v1, v2):
  path = write_squad(tmp_path / "dev.json", questions)
  assert squad_metrics.has_answers(path) == v1
  assert squad_metrics.has_answers(path, True) == v2
  predictions = {qas_id: "x" for qas_id, _, _ in questions}
  for version, is_complete in ((False, v1), (True, v2)):
    if not is_complete:
      with pytest.raises(UserError, match="dev.json holds no "):
        squad_metrics.evaluate(path, predictions, None, version)


def test_v1_counts_impossible_questions_as_wrong_and_says_so(tmp_path, caplog):
  path = write_squad(tmp_path / "dev.json",
                     [("a", ["x"], False), ("b", [], True)])
  with caplog.at_level(logging.WARNING):
    metrics = squad_metrics.evaluate(path, {"a": "x", "b": ""})
  assert metrics["exact"] == 50.0
  assert len(caplog.records) == 1
  assert "1 of 2" in caplog.text
  assert "(b)" in caplog.text
  assert "--version_2_with_negative=True" in caplog.text


@pytest.mark.parametrize("content, message", [
    ("{", "is not JSON"), ("[]", "not in the format of SQuAD"),
    ('{"data": [{"paragraphs": [{"qas": [{}]}]}]}', "'id'"),
    ('{"data": [{"paragraphs": [{"qas": [{"id": 1, "answers": ["x"]}]}]}]}',
     "'answers' must be a list of records with a 'text'"),
    ('{"data": [{"paragraphs": [{"qas": [{"id": []}]}]}]}',
     r"the id at data\[0\].paragraphs\[0\].qas\[0\] is no string")])
def test_files_that_are_not_squad(tmp_path, content, message):
  path = tmp_path / "dev.json"
  path.write_text(content)
  with pytest.raises(UserError, match=message) as caught:
    squad_metrics.has_answers(str(path))
  assert str(path) in str(caught.value)


def test_missing_file(tmp_path):
  with pytest.raises(UserError, match="absent.json"):
    squad_metrics.has_answers(str(tmp_path / "absent.json"))


def test_write_results(tmp_path):
  path = tmp_path / "eval_results.json"
  metrics = collections.OrderedDict([("exact", 50.0), ("total", 2)])
  squad_metrics.write_results(str(path), metrics)
  assert path.read_text() == '{\n    "exact": 50.0,\n    "total": 2\n}\n'


def test_real_files_score_100_with_their_own_answers(shared):
  for name, version_2 in (("squad_v1/dev", False), ("xquad/xquad.zh", False),
                          ("squad_v2/dev", True)):
    path = str(shared / "data" / (name + ".json"))
    questions = squad_metrics.read_gold_questions(path)
    assert squad_metrics.has_answers(path, version_2)
    metrics = squad_metrics.evaluate(
        path, {q.qas_id: (q.answers or [""])[-1] for q in questions},
        dict.fromkeys((q.qas_id for q in questions), 0.0), version_2)
    assert (metrics["exact"], metrics["f1"]) == (100.0, 100.0)
    assert metrics["total"] == len(questions)
    if version_2:
      assert metrics["NoAns_total"] == 681
