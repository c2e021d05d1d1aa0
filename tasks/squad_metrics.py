"""Exact match and F1 of SQuAD v1.1 and v2.0, as the official scripts count.

Lives here: normalising answers, scoring, the v2.0 breakdown and threshold
search, `eval_results.json`. Not here: choosing the answers
(`tasks/squad_answers.py`).

The rules are those of the official evaluations (Rajpurkar et al. 2016,
https://arxiv.org/abs/1606.05250, and Rajpurkar et al. 2018,
https://arxiv.org/abs/1806.03822), down to the order of the additions. One
difference: a question without a prediction is an error here, because this
program predicts them all; the scripts count it as 0 (v1.1) or leave it out
(v2.0).
"""
import collections
import json
import logging
import re
import reprlib
import string
from typing import (Any, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Tuple)

from multigpu.errors import UserError
from multigpu.files import read_json, write_text_atomically

_LOGGER = logging.getLogger(__name__)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# Only ASCII punctuation is dropped, also for other languages.
_NO_PUNCTUATION = {ord(character): None for character in string.punctuation}
_NAMED_IDS = 5


class GoldQuestion(NamedTuple):
  """What a predict file says about one question.

  `answers` is None where the file has no list of answers for it.
  """
  qas_id: str
  answers: Optional[List[str]]
  is_impossible: bool


class Score(NamedTuple):
  """Exact match (0 or 1) and F1 (0..1) of one question."""
  exact: int
  f1: float


def evaluate(predict_file: str,
             predictions: Mapping[str, str],
             null_odds: Optional[Mapping[str, float]] = None,
             version_2_with_negative: bool = False
             ) -> "collections.OrderedDict[str, Any]":
  """Scores predictions against the answers of a SQuAD file.

  Args:
    predict_file: SQuAD-format JSON with answers (see `has_answers`).
    predictions: {question id: predicted text}, "" for "no answer".
    null_odds: {question id: score of "no answer" minus score of the best
      answer}; adds the `best_*` keys. Used with SQuAD 2.0 only. The
      predictions are scored as they are, whatever their odds.
    version_2_with_negative: score by the rules of SQuAD 2.0.

  Returns:
    exact, f1 (0..100) and total; with SQuAD 2.0 also HasAns_* and NoAns_*
    where such questions exist, and with `null_odds` best_exact,
    best_exact_thresh, best_f1, best_f1_thresh. v1.1's own script calls `exact`
    `exact_match`.

  Raises:
    UserError: the file is no SQuAD file or has questions without answers; a
      question has no prediction or no null odds.
  """
  questions = read_gold_questions(predict_file)
  _check_gold(predict_file, questions, version_2_with_negative)
  _check_ids("prediction", predict_file, questions, predictions)
  if not version_2_with_negative:
    return _evaluate_v1(predict_file, questions, predictions)
  if null_odds is not None:
    _check_ids("null odds", predict_file, questions, null_odds)
  return _evaluate_v2(questions, predictions, null_odds)


def list_metrics(version_2_with_negative: bool) -> Dict[str, bool]:
  """Scores of every evaluation: {name: whether more of it is better}."""
  names = ["exact", "f1"]
  if version_2_with_negative:
    names += ["best_exact", "best_f1"]
  return dict.fromkeys(names, True)


def has_answers(predict_file: str,
                version_2_with_negative: bool = False) -> bool:
  """Whether the file holds what `evaluate` needs for each of its questions.

  Raises:
    UserError: the file is no SQuAD file.
  """
  questions = read_gold_questions(predict_file)
  return bool(questions) and not _ids_without_gold(questions,
                                                   version_2_with_negative)


def write_results(path: str, metrics: Mapping[str, Any]) -> None:
  """Writes metrics as JSON (`eval_results.json`), whole or not at all."""
  write_text_atomically(path, json.dumps(metrics, indent=4) + "\n")


def normalize_answer(text: str) -> str:
  """Lower case, no ASCII punctuation, no English articles, single blanks.

  Worked example: " The  U.S. Army!" -> "us army".
  """
  text = text.lower().translate(_NO_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def score_v1(prediction: str, golds: Iterable[str]) -> Score:
  """Best exact match and best F1 over the gold answers, rules of v1.1."""
  return _best_score(prediction, golds, f1_of_empty=_zero)


def score_v2(prediction: str, golds: Iterable[str]) -> Score:
  """The same by the rules of v2.0: no gold answer means that "" is right.

  Gold answers of which nothing is left after normalising do not count.
  """
  golds = [gold for gold in golds if normalize_answer(gold)] or [""]
  return _best_score(prediction, golds, f1_of_empty=_equal)


def _zero(left: List[str], right: List[str]) -> float:
  """v1.1: no common token, so 0, even where both sides are empty."""
  del left, right
  return 0.0


def _equal(left: List[str], right: List[str]) -> float:
  """v2.0: two empty answers agree."""
  return float(left == right)


def _best_score(prediction: str, golds: Iterable[str], f1_of_empty) -> Score:
  """Maximum of each score over the golds, which must not be empty."""
  predicted = normalize_answer(prediction)
  normalized = [normalize_answer(gold) for gold in golds]
  exact = max(int(predicted == gold) for gold in normalized)
  f1 = max(_f1(predicted.split(), gold.split(), f1_of_empty)
           for gold in normalized)
  return Score(exact, f1)


def _f1(predicted: List[str], gold: List[str], f1_of_empty) -> float:
  """Harmonic mean of precision and recall over the multisets of tokens."""
  if not predicted or not gold:
    return f1_of_empty(predicted, gold)
  common = collections.Counter(predicted) & collections.Counter(gold)
  num_common = sum(common.values())
  if not num_common:
    return 0.0
  precision = num_common / len(predicted)
  recall = num_common / len(gold)
  return 2 * precision * recall / (precision + recall)


def _evaluate_v1(predict_file, questions, predictions):
  """Every question of the file counts, in the order of the file."""
  impossible = [q.qas_id for q in questions if not q.answers]
  if impossible:
    _LOGGER.warning(
        "%s: %d of %d questions are marked is_impossible (%s) and count as "
        "wrong: pass --version_2_with_negative=True to train, predict and "
        "score with unanswerable questions.", predict_file, len(impossible),
        len(questions), _name_ids(impossible))
  exact = 0
  f1 = 0.0
  for question in questions:
    if question.answers:
      score = score_v1(predictions[question.qas_id], question.answers)
      exact += score.exact
      f1 += score.f1
  return collections.OrderedDict([
      ("exact", 100.0 * exact / len(questions)),
      ("f1", 100.0 * f1 / len(questions)),
      ("total", len(questions))])


def _evaluate_v2(questions, predictions, null_odds):
  """All questions, then those with and those without an answer."""
  # A repeated id counts once, as in the official script: its last answers.
  answers = collections.OrderedDict(
      (q.qas_id, q.answers or []) for q in questions)
  scores = collections.OrderedDict(
      (qas_id, score_v2(predictions[qas_id], golds))
      for qas_id, golds in answers.items())
  metrics = collections.OrderedDict(_mean_scores(list(scores.values())))
  for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
    part = [scores[qas_id] for qas_id, golds in answers.items()
            if bool(golds) == wanted]
    if part:
      metrics.update((prefix + key, value)
                     for key, value in _mean_scores(part))
  if null_odds is not None:
    outcomes = [
        _Outcome(null_odds[qas_id], bool(golds), bool(predictions[qas_id]),
                 scores[qas_id]) for qas_id, golds in answers.items()]
    for key in ("exact", "f1"):
      best, threshold = _find_best_threshold(outcomes, key)
      metrics["best_" + key] = best
      metrics["best_%s_thresh" % key] = threshold
  return metrics


def _mean_scores(scores: List[Score]) -> List[Tuple[str, Any]]:
  return [("exact", 100.0 * sum(score.exact for score in scores) / len(scores)),
          ("f1", 100.0 * sum(score.f1 for score in scores) / len(scores)),
          ("total", len(scores))]


class _Outcome(NamedTuple):
  """What the threshold search needs to know of one question."""
  null_odds: float
  has_answer: bool
  is_answered: bool
  score: Score


def _find_best_threshold(outcomes: List[_Outcome],
                         key: str) -> Tuple[float, float]:
  """The bound on the null odds up to which to answer, for the best score.

  Starts from answering nothing (every question without an answer is right) and
  answers one question after the other, the surest first: it brings its score
  where an answer exists, and loses the point where none exists and the
  prediction is a text.

  Args:
    outcomes: one per question, in the order of the file (order of ties).
    key: "exact" or "f1".

  Returns:
    (best score in 0..100, null odds of the last question to answer, or 0.0
    where answering nothing is best).
  """
  current = sum(not outcome.has_answer for outcome in outcomes)
  best, threshold = current, 0.0
  for outcome in sorted(outcomes, key=lambda outcome: outcome.null_odds):
    if outcome.has_answer:
      current += getattr(outcome.score, key)
    elif outcome.is_answered:
      current -= 1
    if current > best:
      best, threshold = current, outcome.null_odds
  return 100.0 * best / len(outcomes), threshold


def read_gold_questions(predict_file: str) -> List[GoldQuestion]:
  """Ids and gold answers of a SQuAD file, in the order of the file.

  Raises:
    UserError: it cannot be read, is not JSON or not in SQuAD's format.
  """
  questions = []
  try:
    for i, entry in enumerate(read_json(predict_file)["data"]):
      for j, paragraph in enumerate(entry["paragraphs"]):
        for k, qa in enumerate(paragraph["qas"]):
          path = "data[%d].paragraphs[%d].qas[%d]" % (i, j, k)
          if not isinstance(qa["id"], (str, int)):
            raise TypeError("the id at %s is no string" % path)
          questions.append(GoldQuestion(
              str(qa["id"]),
              _answer_texts(qa.get("answers"),
                            "%s, at %s" % (predict_file, path)),
              bool(qa.get("is_impossible", False))))
  except (KeyError, TypeError, AttributeError) as error:
    raise UserError(
        "%s is not in the format of SQuAD (%s: %s): wanted {\"data\": "
        "[{\"paragraphs\": [{\"context\": ..., \"qas\": [{\"id\": ..., "
        "\"question\": ..., \"answers\": [{\"text\": ...}]}]}]}]}." %
        (predict_file, type(error).__name__, error)) from error
  return questions


def _answer_texts(answers: Any, place: str) -> Optional[List[str]]:
  if answers is None:
    return None
  if not isinstance(answers, list) or not all(
      isinstance(answer, dict) and isinstance(answer.get("text"), str)
      for answer in answers):
    raise UserError("%s: 'answers' must be a list of records with a 'text', "
                    "found %s" % (place, reprlib.repr(answers)))
  return [answer["text"] for answer in answers]


def _ids_without_gold(questions: List[GoldQuestion],
                      version_2_with_negative: bool) -> List[str]:
  """Ids of questions of which the file does not say what is right.

  By v2.0 an empty list of answers says "no answer" by itself, but where *all*
  lists are empty and no question is marked, the answers were taken out.
  """
  def is_known(question: GoldQuestion) -> bool:
    return bool(question.answers) or question.is_impossible

  if version_2_with_negative and any(map(is_known, questions)):
    return [q.qas_id for q in questions
            if q.answers is None and not q.is_impossible]
  return [q.qas_id for q in questions if not is_known(q)]


def _check_gold(predict_file, questions, version_2_with_negative):
  if not questions:
    raise UserError("%s holds no questions: nothing to score." % predict_file)
  missing = _ids_without_gold(questions, version_2_with_negative)
  if missing:
    raise UserError(
        "%s holds no answers for %d of %d questions (%s): scores need a file "
        "with answers." % (predict_file, len(missing), len(questions),
                           _name_ids(missing)))


def _check_ids(what, predict_file, questions, values):
  missing = [q.qas_id for q in questions if q.qas_id not in values]
  if missing:
    raise UserError(
        "no %s for %d of %d questions of %s (%s): predict this file again, "
        "from its first question to its last." %
        (what, len(missing), len(questions), predict_file, _name_ids(missing)))


def _name_ids(ids: List[str]) -> str:
  """The first few ids, for a message."""
  named = ", ".join(ids[:_NAMED_IDS])
  return named + (", ..." if len(ids) > _NAMED_IDS else "")
