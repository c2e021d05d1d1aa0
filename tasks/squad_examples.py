"""Reads files in SQuAD format, versions 1.1 and 2.0, into examples.

What a model sees of them is made in tasks/squad_data.py.
"""
import logging
import re
import reprlib
from typing import Any, Iterator, List, NamedTuple, Optional, Set, Tuple

from multigpu.errors import UserError
from multigpu.files import read_json
from tasks import skipped
from tokenization import BasicTokenizer

_LOGGER = logging.getLogger(__name__)

# What else than a space separates words of a context. Not all that str.split
# takes: a no-break space stays within a word, as it did when Google's models
# were trained.
_BLANK = re.compile("[\t\r\n\u202f]")

_MAX_NAMED_IDS = 50
_MAX_ID_CHARS = 60

_KIND_NAMES = {str: "a string", int: "a whole number", list: "a list",
               bool: "true or false", (str, int): "a string"}


class SquadExample:
  """One question on one document.

  Attributes:
    qas_id: the question's id in the file.
    question_text: the question.
    doc_tokens: the words of the context; questions on one paragraph share one
      list.
    orig_answer_text: the answer as the file has it, "" when impossible; None
      outside training, as are the positions.
    start_position, end_position: first and last word of the answer in
      doc_tokens; -1 when impossible.
    is_impossible: the document does not answer the question.
  """

  def __init__(self, qas_id: str, question_text: str, doc_tokens: List[str],
               orig_answer_text: Optional[str] = None,
               start_position: Optional[int] = None,
               end_position: Optional[int] = None,
               is_impossible: bool = False):
    self.qas_id = qas_id
    self.question_text = question_text
    self.doc_tokens = doc_tokens
    self.orig_answer_text = orig_answer_text
    self.start_position = start_position
    self.end_position = end_position
    self.is_impossible = is_impossible

  def __repr__(self) -> str:
    return ("SquadExample(qas_id=%r, question_text=%r, <%d words>, "
            "start_position=%r, end_position=%r, is_impossible=%r)"
            % (self.qas_id, self.question_text, len(self.doc_tokens),
               self.start_position, self.end_position, self.is_impossible))


class _Place(NamedTuple):
  """Where in the file we are, for messages."""
  input_file: str
  path: str = ""
  qas_id: Optional[str] = None

  def __str__(self) -> str:
    text = "%s, at %s" % (self.input_file, self.path or "the top level")
    if self.qas_id is None:
      return text
    return "%s (id %r)" % (text, _shorten(self.qas_id))

  def at(self, step: str) -> "_Place":
    """The place one step further in, such as "data[3]"."""
    path = "%s.%s" % (self.path, step) if self.path else step
    return _Place(self.input_file, path, self.qas_id)


class _Paragraph(NamedTuple):
  context: str  # each blank in it is a space
  words: List[str]


class _Answer(NamedTuple):
  text: Optional[str] = None
  start: Optional[int] = None  # first word
  end: Optional[int] = None  # last word
  is_impossible: bool = False


_NO_ANSWER = _Answer("", -1, -1, True)


def read_squad_examples(input_file: str, is_training: bool,
                        version_2_with_negative: bool = False,
                        strict: bool = False) -> List[SquadExample]:
  """Reads the questions of a SQuAD file in their order.

  In training, a question whose answer text does not stand at its answer_start
  is left out; one warning names all of them. Otherwise answers are not read.

  Args:
    input_file: path (tf.io.gfile) of a JSON file in UTF-8.
    is_training: read the answers as well.
    version_2_with_negative: heed `is_impossible`; else each training question
      needs exactly one answer.
    strict: refuse the file instead of leaving questions out, and, outside
      training, where a question cannot get a prediction of its own.

  Returns:
    The examples.

  Raises:
    UserError: the file cannot be read, is no JSON, or is not as SQuAD's; the
      message names article, paragraph and question.
  """
  examples: List[SquadExample] = []
  findings = _Findings(input_file)
  for place, paragraph, question in _walk(input_file):
    findings.add(str(place.qas_id), paragraph, question)
    answer: Optional[_Answer] = _Answer()
    if is_training:
      answer = _read_answer(question, version_2_with_negative, paragraph, place)
    text = _field(question, "question", str, place)
    if answer is None:
      findings.misplaced.append(str(place.qas_id))
      continue
    examples.append(SquadExample(
        place.qas_id or "", text, paragraph.words, *answer))
  findings.tell_version(is_training, version_2_with_negative)
  findings.tell_losses(is_training, len(examples), strict)
  return examples


class _Findings:
  """What is odd about the questions of a file, by their ids."""

  def __init__(self, input_file: str):
    self._input_file = input_file
    self._ids: Set[str] = set()
    self._repeated: List[str] = []
    self._wordless: List[str] = []  # on a context without words
    self._impossible: List[str] = []
    self.misplaced: List[str] = []  # the answer is not where it should be

  def add(self, qas_id: str, paragraph: "_Paragraph", question: Any) -> None:
    """Looks at a question."""
    if qas_id in self._ids:
      self._repeated.append(qas_id)
    self._ids.add(qas_id)
    if not paragraph.words:
      self._wordless.append(qas_id)
    if question.get("is_impossible") is True:
      self._impossible.append(qas_id)

  def tell_version(self, is_training: bool, version_2: bool) -> None:
    """Warns where file and --version_2_with_negative do not go together."""
    if self._impossible and not version_2:
      _LOGGER.warning(
          "%s: %d questions are marked is_impossible, but without "
          "--version_2_with_negative=True (SQuAD 2.0) each of them counts as "
          "one that has an answer: ids %s", self._input_file,
          len(self._impossible), _name_some(self._impossible))
    if is_training and version_2 and self._ids and not self._impossible:
      _LOGGER.warning(
          "%s: --version_2_with_negative=True, but no question is marked "
          "is_impossible: a model learns from it to answer always. For SQuAD "
          "1.1 leave out the flag.", self._input_file)

  def tell_losses(self, is_training: bool, num_kept: int, strict: bool) -> None:
    """Names the questions that are left out, or get no prediction of theirs."""
    if self.misplaced:
      skipped.report(
          _LOGGER, "%s: read %d, kept %d, skipped %d: no such answer text at "
          "answer_start in the context: ids %s" % (
              self._input_file, num_kept + len(self.misplaced), num_kept,
              len(self.misplaced), _name_some(self.misplaced)), strict)
    if is_training:
      return
    for ids, problem in (
        (self._repeated, "have the id of an earlier one, and only the last "
         "one's prediction will be kept (give each an id of its own)"),
        (self._wordless, "have a context without words, and no text can "
         "answer them")):
      if ids:
        skipped.report(_LOGGER, "%s: read %d, of these %d %s: ids %s" % (
            self._input_file, num_kept, len(ids), problem, _name_some(ids)),
            strict)


def _name_some(ids: List[str]) -> str:
  return skipped.name_some(list(map(_shorten, ids[:_MAX_NAMED_IDS]))
                           + ids[_MAX_NAMED_IDS:], _MAX_NAMED_IDS)


def _shorten(qas_id: Any) -> Any:
  """An id cut to what fits into a message."""
  if len(str(qas_id)) <= _MAX_ID_CHARS:
    return qas_id
  return str(qas_id)[:_MAX_ID_CHARS] + "..."


def _walk(input_file: str) -> Iterator[Tuple[_Place, _Paragraph, Any]]:
  """Yields (place, paragraph, question record) for each question."""
  top = _Place(input_file)
  articles = _field(read_json(input_file), "data", list, top)
  for i, article in enumerate(articles):
    in_article = top.at("data[%d]" % i)
    paragraphs = _field(article, "paragraphs", list, in_article)
    for j, record in enumerate(paragraphs):
      in_paragraph = in_article.at("paragraphs[%d]" % j)
      paragraph = _split_context(_field(record, "context", str, in_paragraph))
      for k, question in enumerate(_field(record, "qas", list, in_paragraph)):
        place = in_paragraph.at("qas[%d]" % k)
        qas_id = _field(question, "id", (str, int), place)
        yield _Place(input_file, place.path, qas_id), paragraph, question


def _field(record: Any, key: str, kind: Any, place: _Place) -> Any:
  """Returns record[key] after a check of its type."""
  if not isinstance(record, dict):
    raise UserError("%s: expected a record with %r, found %s"
                    % (place, key, _show(record)))
  if key not in record:
    raise UserError("%s: %r is missing, there is only %s. A file in SQuAD "
                    "format is wanted." % (place, key, _show(sorted(record))))
  value = record[key]
  if not isinstance(value, kind) or (isinstance(value, bool)
                                     and kind is not bool):
    raise UserError("%s: %r must be %s, found %s"
                    % (place, key, _KIND_NAMES[kind], _show(value)))
  return value


# Unlike repr, it does not walk through all of a large or deeply nested value.
_show = reprlib.repr


def _split_context(context: str) -> _Paragraph:
  context = _BLANK.sub(" ", context)
  return _Paragraph(context, _find_words(context))


def _find_words(text: str) -> List[str]:
  return list(filter(None, text.split(" ")))


def _read_answer(question: Any, version_2: bool, paragraph: _Paragraph,
                 place: _Place) -> Optional[_Answer]:
  """Returns the answer to train on, None when the text is not where it says."""
  if (version_2 and "is_impossible" in question
      and _field(question, "is_impossible", bool, place)):
    return _NO_ANSWER
  answers = _field(question, "answers", list, place)
  if len(answers) != 1:
    remedy = "."
    if not answers:
      remedy = ("; if it has none, mark it \"is_impossible\": true."
                if version_2 else "; for SQuAD 2.0 files pass "
                "--version_2_with_negative=True.")
    raise UserError("%s: %d answers, but training wants exactly one for each "
                    "question%s" % (place, len(answers), remedy))
  place = place.at("answers[0]")
  return _locate_answer(_field(answers[0], "text", str, place),
                        _field(answers[0], "answer_start", int, place),
                        paragraph)


def _has_tokens(text: str) -> bool:
  """False for a text of nothing but characters that BERT drops."""
  return (any(map(str.isalnum, text))
          or bool(BasicTokenizer(do_lower_case=True).tokenize(text)))


def _locate_answer(text: str, first: int,
                   paragraph: _Paragraph) -> Optional[_Answer]:
  """Turns an answer at character `first` of the context into word positions.

  A blank belongs to the word before it. The answer counts as found when the
  words from its first to its last character contain it, blanks normalised.
  """
  last = first + len(text) - 1
  if not text.strip() or first < 0 or last >= len(paragraph.context):
    return None
  start = len(_find_words(paragraph.context[:first + 1])) - 1
  # Of the words from there on, the first is that of `start` itself, unless the
  # answer begins with a blank.
  end = start + len(_find_words(paragraph.context[first:last + 1]))
  if paragraph.context[first] != " ":
    end -= 1
  found = " ".join(paragraph.words[start:end + 1]) if start >= 0 else ""
  if " ".join(text.split()) not in found or not _has_tokens(found):
    return None
  return _Answer(text, start, end)
