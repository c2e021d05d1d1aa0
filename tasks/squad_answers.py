"""From start and end logits to the answers of SQuAD questions.

Lives here: the n best answers of a question, the "no answer" decision of SQuAD
2.0 and the three result files. Not here: which spans of a window are possible
(`tasks/squad_spans.py`), from word pieces back to text of the document
(`tasks/squad_final_text.py`), EM/F1 (`tasks/squad_metrics.py`).

What is chosen and written equals `write_predictions` of Google's run_squad.py,
which crashes in SQuAD 2.0 where a question has no valid span; here its answer
is "" and all other questions keep theirs.
"""
import collections
import heapq
import itertools
import json
import logging
import math
import operator
from typing import (Any, Dict, Iterable, Iterator, List, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from multigpu.errors import UserError
from multigpu.files import write_text_atomically
from tasks.squad_final_text import Document, get_final_text, join_pieces
from tasks.squad_spans import get_best_indexes, rank_spans

_LOGGER = logging.getLogger(__name__)

# What v1.1 answers where no span is left (Google's text, kept).
_NO_SPAN_TEXT = "empty"
# Null odds of a question without any span: a finite number that JSON can hold
# and no threshold exceeds, so that "" is the answer at each of them.
_SURELY_NULL_ODDS = 1e6
_NAMED_IDS = 50
_ENTRY_KEYS = ("text", "probability", "start_logit", "end_logit")

# Google's names, for the run script.
_get_best_indexes = get_best_indexes
__all__ = ["Answer", "AnswerSettings", "AnswerWriter", "RawResult",
           "get_final_text", "iterate_answers", "write_predictions"]

# Logits of one feature; sequences of max_seq_length floats.
RawResult = collections.namedtuple(
    "RawResult", ["unique_id", "start_logits", "end_logits"])
# (example, its features, the results of these features in the same order)
Group = Tuple[Any, Sequence[Any], Sequence[Any]]


class AnswerSettings(NamedTuple):
  """The flags of run_squad that choose answers, under their names."""
  n_best_size: int = 20
  max_answer_length: int = 30  # In word pieces.
  do_lower_case: bool = True
  version_2_with_negative: bool = False
  null_score_diff_threshold: float = 0.0
  verbose_logging: bool = False


class Answer(NamedTuple):
  """The outcome for one question.

  `nbest` has entries of text, probability, start_logit, end_logit. `null_odds`
  (score of "no answer" minus score of the best span) is None in v1.1.
  """
  qas_id: str
  text: str
  nbest: List["collections.OrderedDict[str, Any]"]
  null_odds: Optional[float]


class _Entry(NamedTuple):
  """A candidate with its final text."""
  text: str
  start_logit: float
  end_logit: float

  @property
  def score(self) -> float:
    return self.start_logit + self.end_logit


def write_predictions(all_examples, all_features, all_results, n_best_size,
                      max_answer_length, do_lower_case, output_prediction_file,
                      output_nbest_file, output_null_log_odds_file, *,
                      version_2_with_negative=False,
                      null_score_diff_threshold=0.0, verbose_logging=False):
  """Google's function: answers all questions and writes the result files.

  Args:
    all_examples: SquadExamples, in the order of the files to write.
    all_features: InputFeatures; `example_index` tells their example.
    all_results: RawResults in any order, one for each feature.
    n_best_size: starts and ends to look at per feature, answers to keep.
    max_answer_length: in word pieces.
    do_lower_case: as the features were made.
    output_prediction_file: path for {id: text}.
    output_nbest_file: path for {id: [{text, probability, ...}]}.
    output_null_log_odds_file: path for {id: null odds}; SQuAD 2.0 only.
    version_2_with_negative: allow "no answer" (SQuAD 2.0).
    null_score_diff_threshold: answer "" where the null odds exceed it.
    verbose_logging: log each answer that cannot be found in the document.

  Raises:
    UserError: a feature has no result, or its logits are not numbers.
  """
  settings = AnswerSettings(
      n_best_size, max_answer_length, do_lower_case, version_2_with_negative,
      null_score_diff_threshold, verbose_logging)
  writer = AnswerWriter()
  groups = _group_by_question(all_examples, all_features, all_results)
  for answer in iterate_answers(groups, settings):
    writer.add(answer)
  writer.write(output_prediction_file, output_nbest_file,
               output_null_log_odds_file if version_2_with_negative else None)


def iterate_answers(groups: Iterable[Group],
                    settings: AnswerSettings) -> Iterator[Answer]:
  """Answers one question after the other; holds one document at a time.

  After the last one, a single warning names the questions of v1.1 for which no
  span was left.

  Args:
    groups: per question (example, its features, their results); the features
      of a question may be none.
    settings: see AnswerSettings.

  Raises:
    UserError: logits are not numbers.
  """
  document: Optional[Document] = None
  ids_without_span = []
  for example, features, results in groups:
    # Questions share paragraphs.
    if document is None or document.words != example.doc_tokens:
      document = Document(example.doc_tokens, settings.do_lower_case,
                          settings.verbose_logging)
    if settings.version_2_with_negative:
      null = _find_null_entry(results)
      entries = _iterate_entries(document, features, results, settings, null)
      yield _answer_v2(example.qas_id, entries, null, settings)
      continue
    entries = _iterate_entries(document, features, results, settings)
    nbest = list(itertools.islice(entries, settings.n_best_size))
    if not nbest:
      ids_without_span.append(example.qas_id)
      nbest = [_Entry(_NO_SPAN_TEXT, 0.0, 0.0)]
    yield Answer(example.qas_id, nbest[0].text, _describe(nbest), None)
  if ids_without_span:
    _warn_without_span(ids_without_span, settings)


def _warn_without_span(ids: List[str], settings: AnswerSettings) -> None:
  _LOGGER.warning(
      "%d questions have no possible answer (an empty context, or no valid "
      "span of at most --max_answer_length=%d word pieces among the "
      "--n_best_size=%d best starts and ends) and get the text \"%s\": %s%s",
      len(ids), settings.max_answer_length, settings.n_best_size,
      _NO_SPAN_TEXT, ", ".join(map(str, ids[:_NAMED_IDS])),
      ", ..." if len(ids) > _NAMED_IDS else "")


def _answer_v2(qas_id: str, entries: Iterator[_Entry], null: _Entry,
               settings: AnswerSettings) -> Answer:
  """Chooses between the best span and "no answer"."""
  nbest = list(itertools.islice(entries, settings.n_best_size))
  best = next((entry for entry in nbest if entry.text), None)
  if all(entry.text for entry in nbest):
    nbest.append(null)
  if best is None:
    return Answer(qas_id, "", _describe(nbest), _SURELY_NULL_ODDS)
  # Subtracted one by one, as Google does: the last digit depends on it.
  odds = null.score - best.start_logit - best.end_logit
  text = "" if odds > settings.null_score_diff_threshold else best.text
  return Answer(qas_id, text, _describe(nbest), odds)


def _find_null_entry(results: Sequence[Any]) -> _Entry:
  """The entry of [CLS] in the window that is least for "no answer"."""
  nulls = (_Entry("", float(result.start_logits[0]),
                  float(result.end_logits[0])) for result in results)
  return min(nulls, key=operator.attrgetter("score"),
             default=_Entry("", 0.0, 0.0))


def _describe(
    entries: List[_Entry]) -> List["collections.OrderedDict[str, Any]"]:
  probabilities = _compute_softmax([entry.score for entry in entries])
  return [
      collections.OrderedDict(zip(_ENTRY_KEYS, (
          entry.text, probability, entry.start_logit, entry.end_logit)))
      for entry, probability in zip(entries, probabilities)]


def _iterate_entries(document: Document, features: Sequence[Any],
                     results: Sequence[Any], settings: AnswerSettings,
                     null: Optional[_Entry] = None) -> Iterator[_Entry]:
  """Yields a question's candidates, best first, no text twice.

  Equal scores keep the order of features, then of starts and ends by logit;
  `null`, the candidate of SQuAD 2.0 without text, is the last of its equals.
  """
  if len(features) != len(results):
    raise ValueError("%d features, but results of %d" %
                     (len(features), len(results)))
  rankings = [rank_spans(feature, result, settings.n_best_size,
                         settings.max_answer_length)
              for feature, result in zip(features, results)]
  if null is not None:
    rankings.append(iter([
        (None, 0, 0, null.start_logit, null.end_logit, null.score)]))
  seen: Set[str] = set()
  # The merge is stable: of equals, the feature that comes first.
  for feature, start, end, start_logit, end_logit, _ in heapq.merge(
      *rankings, key=operator.itemgetter(-1), reverse=True):
    text = ""
    if feature is not None:
      text = document.find_text(
          join_pieces(feature.tokens[start:end + 1]),
          feature.token_to_orig_map[start], feature.token_to_orig_map[end])
      if text in seen:
        continue
    seen.add(text)
    yield _Entry(text, start_logit, end_logit)


def _compute_softmax(scores: Sequence[float]) -> List[float]:
  """Softmax of a few numbers; [] of none.

  Plain additions in the given order: np.exp, and sum() of Python 3.12, round
  otherwise in the last digit, and files are to be equal byte for byte.
  """
  if not scores:
    return []
  maximum = max(scores)
  exponentials = [math.exp(score - maximum) for score in scores]
  total = 0.0
  for value in exponentials:
    total += value
  return [value / total for value in exponentials]


class AnswerWriter:
  """Collects answers and writes the result files, each whole or not at all.

  Attributes:
    predictions: {question id: text}, in the order of the calls of `add`.
    null_odds: {question id: null odds}, empty in v1.1.
  """

  def __init__(self) -> None:
    self.predictions: Dict[str, str] = collections.OrderedDict()
    self.null_odds: Dict[str, float] = collections.OrderedDict()
    # Already as JSON, which takes less memory than the dicts.
    self._nbest: Dict[str, str] = collections.OrderedDict()

  def add(self, answer: Answer) -> None:
    """Takes the answer of the next question; the last of equal ids counts."""
    qas_id = str(answer.qas_id)  # Some files have numbers, JSON keys are text.
    self.predictions[qas_id] = answer.text
    self._nbest[qas_id] = _to_json_list(answer.nbest)
    if answer.null_odds is not None:
      self.null_odds[qas_id] = answer.null_odds

  def write(self, prediction_file: str, nbest_file: str,
            null_odds_file: Optional[str] = None) -> None:
    """Writes the files; no null odds where their path is None.

    Raises:
      UserError: a file cannot be written.
    """
    nbest = ",\n".join("    %s: %s" % (json.dumps(qas_id), entries)
                       for qas_id, entries in self._nbest.items())
    write_text_atomically(nbest_file, "{\n%s\n}\n" % nbest if nbest else "{}\n")
    if null_odds_file is not None:
      write_text_atomically(null_odds_file, _to_json(self.null_odds))
    # Last: who waits for the predictions finds the other files too.
    write_text_atomically(prediction_file, _to_json(self.predictions))


def _to_json(value: Any) -> str:
  return json.dumps(value, indent=4) + "\n"


# The layout of json.dumps(indent=4). That runs in Python, entry by entry; the
# encoder in C gets all values of a question at once and gives back a line for
# each (a line break within a text is escaped).
_encode_lines = json.JSONEncoder(separators=("\n", ": ")).encode
_ENTRY_LAYOUT = """{
            "text": %s,
            "probability": %s,
            "start_logit": %s,
            "end_logit": %s
        }"""


def _to_json_list(entries: Sequence[Dict[str, Any]]) -> str:
  """The n-best entries of a question as they stand in their file."""
  values = [entry[key] for entry in entries for key in _ENTRY_KEYS]
  lines = _encode_lines(values)[1:-1].split("\n")
  layout = ",\n        ".join([_ENTRY_LAYOUT] * len(entries))
  return "[\n        %s\n    ]" % (layout % tuple(lines))


def _group_by_question(all_examples, all_features,
                       all_results) -> Iterator[Group]:
  """Yields (example, features, results) in the order of the examples."""
  results = {result.unique_id: result for result in all_results}
  features = collections.defaultdict(list)
  for feature in all_features:
    features[feature.example_index].append(feature)
    if feature.unique_id not in results:
      raise UserError(
          "no logits for feature %s of question %s: predict again, all "
          "features at once." % (
              feature.unique_id, all_examples[feature.example_index].qas_id))
  for index, example in enumerate(all_examples):
    yield example, features[index], [
        results[feature.unique_id] for feature in features[index]]
