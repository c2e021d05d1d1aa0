"""From logits to answers: Google's files byte for byte, and its gaps mended."""
import collections
import json
import logging
import re

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from multigpu.errors import UserError
from tasks import (squad_answers, squad_data, squad_examples,
                   squad_final_text, squad_spans)
from tasks.squad_answers import AnswerSettings, RawResult
import tokenization

Example = collections.namedtuple("Example", "qas_id doc_tokens")
Feature = collections.namedtuple(
    "Feature", "unique_id example_index tokens token_to_orig_map "
    "token_is_max_context")

GOLDEN_FOLDERS = [
    "%s_out_%s" % (name, mode)
    for name, first in (("squad_v1_dev", "v1_n20_a30_plain"),
                        ("xquad_zh", "v1_n12_a30_plain"))
    for mode in (first, "v1_n5_a10_plain", "v1_n5_a10_ties",
                 "v2_n20_a30_t0_boosted", "v2_n5_a10_t-2_boosted",
                 "v2_n5_a30_t-2_ties")]
FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


def read_json(path):
  with open(str(path), encoding="utf-8") as stream:
    return json.load(stream)


def load_golden_inputs(folder, name):
  """Examples and features as the reference program made them."""
  examples = []
  for record in read_json(folder / (name + "_examples.json")):
    words = record["doc_tokens"]
    if isinstance(words, dict):
      words = examples[words["same_as_example"]].doc_tokens
    examples.append(Example(record["qas_id"], words))
  example_indexes = np.load(
      str(folder / (name + "_features.npz")))["example_index"]
  features = []
  for record, example_index in zip(
      read_json(folder / (name + "_features.json")), example_indexes):
    first = record["first_doc_token"]
    features.append(Feature(
        record["unique_id"], int(example_index), record["tokens"].split(" "),
        dict(enumerate(record["token_to_orig"], first)),
        {index: flag == "1"
         for index, flag in enumerate(record["is_max_context"], first)}))
  return examples, features


def assert_same_files(written, golden):
  """Byte for byte; probabilities to 1e-12, for other C libraries' exp."""
  assert (sorted(path.name for path in written.iterdir()) ==
          sorted(path.name for path in golden.iterdir()))
  probability = re.compile(r'(?<="probability": )[^,\n]+')
  for path in golden.iterdir():
    own, wanted = ((folder / path.name).read_bytes().decode("ascii")
                   for folder in (written, golden))
    assert probability.sub("", own) == probability.sub("", wanted), path.name
    np.testing.assert_allclose(
        [float(x) for x in probability.findall(own)],
        [float(x) for x in probability.findall(wanted)], rtol=1e-12)


@pytest.mark.parametrize("folder_name", GOLDEN_FOLDERS)
@pytest.mark.parametrize("as_lists", [False, True])
def test_golden_files(shared, tmp_path, folder_name, as_lists):
  folder = shared / "golden" / "squad_features"
  name, version, n_best, length, threshold, kind = re.match(
      r"(\w+)_out_v(\d)_n(\d+)_a(\d+)(?:_t(-?\d+))?_(\w+)$",
      folder_name).groups()
  examples, features = load_golden_inputs(folder, name)
  logits = np.load(str(folder / (name + "_logits.npz")))
  columns = [logits[kind + "_start"], logits[kind + "_end"]]
  if as_lists:
    columns = [column.tolist() for column in columns]
  results = [RawResult(int(unique_id), start, end) for unique_id, start, end
             in zip(logits["unique_ids"], *columns)]
  squad_answers.write_predictions(
      examples, features, results[::-1], int(n_best), int(length), True,
      *(str(tmp_path / name) for name in FILES),
      version_2_with_negative=version == "2",
      null_score_diff_threshold=float(threshold or 0))
  assert_same_files(tmp_path, folder / folder_name)


@pytest.mark.parametrize("name, vocab", [("squad_v1_dev", "uncased"),
                                         ("xquad_zh", "chinese")])
def test_golden_files_from_own_features(shared, tmp_path, name, vocab):
  folder = shared / "golden" / "squad_features"
  examples = squad_examples.read_squad_examples(
      str(folder / (name + "_input.json")), False)
  tokenizer = tokenization.FullTokenizer(
      str(shared / "data" / "vocab" / vocab / "vocab.txt"))
  features = squad_data.iterate_features(
      examples, tokenizer, squad_data.FeatureSettings(128, 32, 24), False)
  logits = np.load(str(folder / (name + "_logits.npz")))
  results = [RawResult(*row) for row in zip(
      logits["unique_ids"], logits["ties_start"], logits["ties_end"])]
  squad_answers.write_predictions(
      examples, features, results, 5, 30, True,
      *(str(tmp_path / name) for name in FILES),
      version_2_with_negative=True, null_score_diff_threshold=-2.0)
  assert_same_files(tmp_path, folder / (name + "_out_v2_n5_a30_t-2_ties"))


# A question on six words of one piece each: [CLS] q [SEP] 6 words [SEP].
WORDS = ["The", "boat", "is", "blue,", "very", "Blue."]
PIECES = ["the", "boat", "is", "blue", "very", "blue"]
NUM_TOKENS = 10


def make_feature(unique_id=1, example_index=0, **changes):
  return Feature(
      unique_id, example_index, ["[CLS]", "q", "[SEP]"] + PIECES + ["[SEP]"],
      {3 + i: i for i in range(6)}, {3 + i: True for i in range(6)}
  )._replace(**changes)


def make_result(starts, ends, unique_id=1):
  """Logits from {token: logit}; -5 elsewhere, still lower outside."""
  columns = []
  for given in (starts, ends):
    logits = [-9.0] * 3 + [-5.0 - i / 100 for i in range(6)] + [-9.0]
    for index, value in given.items():
      logits[index] = value
    columns.append(logits)
  return RawResult(unique_id, *columns)


def answer_one(features, results, words=None, **settings):
  group = (Example("id", WORDS if words is None else words), features, results)
  answers = list(squad_answers.iterate_answers(
      [group], AnswerSettings(**settings)))
  assert len(answers) == 1
  return answers[0]


def test_best_span_and_entries():
  answer = answer_one([make_feature()],
                      [make_result({4: 2.0, 3: 1.0}, {6: 3.0})], n_best_size=2)
  assert answer.text == "boat is blue"
  assert answer.null_odds is None
  assert [list(entry.items()) for entry in answer.nbest] == [
      [("text", "boat is blue"),
       ("probability", pytest.approx(1 / (1 + np.exp(-1)), rel=1e-12)),
       ("start_logit", 2.0), ("end_logit", 3.0)],
      [("text", "The boat is blue"),
       ("probability", pytest.approx(1 / (1 + np.exp(1)), rel=1e-12)),
       ("start_logit", 1.0), ("end_logit", 3.0)]]
  assert isinstance(answer.nbest[0], collections.OrderedDict)


@pytest.mark.parametrize("maximum, text", [(3, "boat is blue"), (2, "is blue")])
def test_max_answer_length_counts_both_ends(maximum, text):
  result = make_result({4: 2.0, 5: 1.0}, {6: 3.0})
  assert answer_one([make_feature()], [result],
                    max_answer_length=maximum).text == text


def test_start_must_be_in_its_best_window_but_end_need_not():
  feature = make_feature()
  feature.token_is_max_context.update({4: False, 6: False})
  result = make_result({4: 9.0, 5: 1.0}, {6: 3.0})
  assert answer_one([feature], [result]).text == "is blue"


def test_spans_outside_the_document_do_not_count():
  result = make_result({1: 9.0, 5: 1.0}, {9: 9.0, 6: 3.0})
  assert answer_one([make_feature()], [result]).text == "is blue"


def test_equal_texts_are_kept_once():
  # "blue" from two places of one window and from a second window.
  answer = answer_one(
      [make_feature(), make_feature(2)],
      [make_result({6: 3.0}, {6: 3.0}), make_result({6: 4.0}, {6: 1.0}, 2)])
  texts = [entry["text"] for entry in answer.nbest]
  assert texts.count("blue") == 1
  assert len(set(texts)) == len(texts)


def test_equal_scores_keep_the_order_of_windows_and_starts():
  flat = RawResult(1, [0.0] * NUM_TOKENS, [0.0] * NUM_TOKENS)
  later = make_feature(2, token_to_orig_map={3 + i: 5 for i in range(6)})
  answer = answer_one([make_feature(), later], [flat, flat._replace(
      unique_id=2)], n_best_size=7)
  assert [entry["text"] for entry in answer.nbest] == [
      "The", "The boat", "The boat is", "The boat is blue", "boat", "boat is",
      "boat is blue"]


@pytest.mark.parametrize("threshold, text", [
    (0.99, ""), (1.0, "boat"), (1.01, "boat")])
def test_v2_threshold_must_be_exceeded(threshold, text):
  answer = answer_one(
      [make_feature()], [make_result({0: 2.0, 4: 1.5}, {0: 1.0, 4: 0.5})],
      version_2_with_negative=True, null_score_diff_threshold=threshold)
  assert answer.null_odds == 1.0
  assert answer.text == text
  assert answer.nbest[0]["text"] == ""


def test_v2_odds_are_rounded_as_ever():
  answer = answer_one(
      [make_feature()], [make_result({0: 0.3, 4: 0.1}, {0: 0.0, 4: 0.2})],
      version_2_with_negative=True)
  assert answer.null_odds == 0.3 - 0.1 - 0.2 != 0.3 - (0.1 + 0.2)


def test_v2_takes_the_window_least_for_no_answer():
  answer = answer_one(
      [make_feature(), make_feature(2)],
      [make_result({0: 8.0, 4: 1.0}, {0: 8.0, 4: 1.0}),
       make_result({0: 0.5}, {0: 0.5}, 2)], version_2_with_negative=True)
  assert answer.null_odds == -1.0
  assert answer.text == "boat"


def test_v2_null_entry_is_added_behind_the_n_best():
  answer = answer_one([make_feature()], [make_result({4: 9.0}, {4: 9.0})],
                      version_2_with_negative=True, n_best_size=1)
  assert [entry["text"] for entry in answer.nbest] == ["boat", ""]


@pytest.mark.parametrize("features, results, words", [
    ([], [], []),
    ([make_feature()], [make_result({4: 2.0}, {4: 2.0})], WORDS)])
def test_questions_without_any_span(caplog, features, results, words):
  """No window at all, or --max_answer_length=0."""
  settings = {"words": words, "max_answer_length": 0}
  with caplog.at_level(logging.WARNING):
    answer = answer_one(features, results, version_2_with_negative=True,
                        null_score_diff_threshold=100.0, **settings)
    assert not caplog.records
    assert answer.text == ""
    assert np.isfinite(answer.null_odds)
    assert answer.null_odds > 1000
    assert [entry["text"] for entry in answer.nbest] == [""]
    assert answer_one(features, results, **settings).nbest == [
        {"text": "empty", "probability": 1.0, "start_logit": 0.0,
         "end_logit": 0.0}]
  assert len(caplog.records) == 1
  assert "1 questions" in caplog.text
  assert caplog.text.rstrip().endswith("id")


def test_logits_that_are_not_numbers():
  result = make_result({4: float("nan")}, {})
  with pytest.raises(UserError, match="feature 1 are not numbers"):
    answer_one([make_feature()], [result], version_2_with_negative=True)


def test_results_of_other_features_are_refused():
  with pytest.raises(ValueError, match="feature 1 .* feature 2"):
    answer_one([make_feature()], [make_result({}, {}, unique_id=2)])
  with pytest.raises(ValueError, match="1 features, but results of 0"):
    answer_one([make_feature()], [])


def test_missing_result_names_the_question(tmp_path):
  with pytest.raises(UserError, match="feature 1 of question id"):
    squad_answers.write_predictions(
        [Example("id", WORDS)], [make_feature()], [], 20, 30, True,
        *(str(tmp_path / name) for name in FILES))
  assert not list(tmp_path.iterdir())


def test_answers_are_streamed():
  pulled = []

  def groups():
    for index in range(3):
      pulled.append(index)
      yield (Example(index, WORDS), [make_feature()],
             [make_result({4: 2.0}, {4: 2.0})])

  answers = squad_answers.iterate_answers(groups(), AnswerSettings())
  assert next(answers).qas_id == 0
  assert pulled == [0]


def test_documents_are_not_mixed_up():
  result = make_result({4: 2.0}, {4: 2.0})
  other = ["A", "tower", "is", "blue,", "very", "Blue."]
  groups = [(Example(str(i), words),
             [make_feature(tokens=["[CLS]", "q", "[SEP]"] + pieces)], [result])
            for i, (words, pieces) in enumerate(
                [(WORDS, PIECES), (other, ["a", "tower"]), (WORDS, PIECES)])]
  answers = squad_answers.iterate_answers(groups, AnswerSettings())
  assert [answer.text for answer in answers] == ["boat", "tower", "boat"]


ODD_TEXT = 'say "%s"\n\\ caf\u00e9 \u8dd1 \U0001f600 100%'


def test_files_are_those_of_json_dumps(tmp_path):
  writer = squad_answers.AnswerWriter()
  nbest = [
      collections.OrderedDict([
          ("text", text), ("probability", probability), ("start_logit", 1e-30),
          ("end_logit", -2.0)])
      for text, probability in ((ODD_TEXT, 0.1), ("", 1.0 / 3))]
  for qas_id, entries in ((ODD_TEXT, nbest), (7, nbest[:1]), ("z", nbest)):
    writer.add(squad_answers.Answer(qas_id, ODD_TEXT, entries, 0.5))
  paths = [tmp_path / name for name in FILES]
  writer.write(*map(str, paths))
  wanted = (
      [(ODD_TEXT, ODD_TEXT), ("7", ODD_TEXT), ("z", ODD_TEXT)],
      [(ODD_TEXT, nbest), ("7", nbest[:1]), ("z", nbest)],
      [(ODD_TEXT, 0.5), ("7", 0.5), ("z", 0.5)])
  for path, pairs in zip(paths, wanted):
    assert path.read_bytes().decode("ascii") == json.dumps(
        collections.OrderedDict(pairs), indent=4) + "\n"
  assert writer.predictions["7"] == ODD_TEXT
  assert len(list(tmp_path.iterdir())) == 3


def test_files_of_no_questions(tmp_path):
  squad_answers.write_predictions(
      [], [], [], 20, 30, True, *(str(tmp_path / name) for name in FILES))
  assert [path.name for path in sorted(tmp_path.iterdir())] == [
      "nbest_predictions.json", "predictions.json"]
  assert (tmp_path / "nbest_predictions.json").read_text() == "{}\n"
  assert (tmp_path / "predictions.json").read_text() == "{}\n"


def test_final_text_golden(shared):
  pairs = read_json(shared / "golden" / "squad_features" /
                    "get_final_text.json")
  assert len(pairs) > 10
  for pair in pairs:
    for key, do_lower_case in (("lower", True), ("cased", False)):
      assert squad_answers.get_final_text(
          pair["pred_text"], pair["orig_text"], do_lower_case) == pair[key]


def test_final_text_of_users_reports(shared):
  """case 04: Google's text, which always is a part of the original."""
  folder = shared / "cases" / "04-squad-final-text-too-long"
  pairs = read_json(folder / "pairs.json")
  wanted = read_json(folder / "google_output.json")
  assert len(pairs) == len(wanted) > 0
  for pair, expected in zip(pairs, wanted):
    text = squad_answers.get_final_text(pair["pred"], pair["orig"],
                                        pair["lower"])
    assert text == expected["google"]
    assert text in pair["orig"]


@pytest.mark.parametrize("pred_text, orig_text, wanted", [
    ("john smith", "Mr. John  Smith's", "John  Smith"),
    ("4 . 5 %", "(4.5%)", "4.5%"),
    ("elan", "L'\u00c9lan vital", "\u00c9lan"),
    ("", "Lyon", "Lyon"),  # Nothing to look for.
    (" lyon", "in Lyon", "in Lyon"),  # A blank is no letter.
    ("paris", "in Lyon", "in Lyon")])
def test_final_text(pred_text, orig_text, wanted):
  assert squad_answers.get_final_text(pred_text, orig_text, True) == wanted


def test_verbose_logging_names_what_was_not_found(caplog):
  with caplog.at_level(logging.INFO):
    squad_answers.get_final_text("paris", "in Lyon", True)
    assert not caplog.records
    answer_one([make_feature(tokens=["paris"] * NUM_TOKENS)],
               [make_result({4: 2.0}, {4: 2.0})], verbose_logging=True)
  assert "'paris'" in caplog.text


TRICKY = "aA\u00e9\u0301 \u03a3\u00df\u0130,.-#\u8dd1\u00a0\u200b\u00ad\ufffd'"
WORD = strategies.text(TRICKY.replace(" ", ""), min_size=1, max_size=5)


@hypothesis.given(words=strategies.lists(WORD, min_size=1, max_size=6),
                  do_lower_case=strategies.booleans(),
                  data=strategies.data())
@hypothesis.settings(deadline=None, max_examples=300)
def test_document_equals_final_text(words, do_lower_case, data):
  first = data.draw(strategies.integers(0, len(words) - 1))
  last = data.draw(strategies.integers(first, len(words) - 1))
  tokens = tokenization.BasicTokenizer(do_lower_case).tokenize(
      " ".join(words[first:last + 1]))
  # Part of the tokens, from any character to any other, or something else.
  text = " ".join(tokens)
  begin = data.draw(strategies.integers(0, len(text)))
  end = data.draw(strategies.integers(begin, len(text)))
  pred_text = data.draw(strategies.sampled_from(
      [text[begin:end].strip(), text, "a", "nowhere", ""]))
  pred_text = " ".join(pred_text.split())
  document = squad_final_text.Document(words, do_lower_case)
  assert document.find_text(pred_text, first, last) == (
      squad_final_text.get_final_text(
          pred_text, " ".join(words[first:last + 1]), do_lower_case))


def test_document_of_words_with_blanks():
  document = squad_final_text.Document(["A b", "", "C  d"], True)
  assert document.find_text("b c", 0, 2) == "b  C"


LOGIT = strategies.one_of(strategies.sampled_from([0.0, -0.0, 1.0]),
                          strategies.floats(-9, 9, width=32))


@hypothesis.given(logits=strategies.lists(LOGIT, max_size=30),
                  count=strategies.integers(0, 35),
                  dtype=strategies.sampled_from([None, np.float32]))
@hypothesis.settings(deadline=None)
def test_best_indexes_equal_a_stable_sort(logits, count, dtype):
  wanted = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
  given = logits if dtype is None else np.array(logits, dtype)
  assert squad_answers._get_best_indexes(given, count) == wanted[:count]


def test_softmax():
  assert squad_answers._compute_softmax([]) == []
  assert squad_answers._compute_softmax([1000.0]) == [1.0]
  assert squad_answers._compute_softmax([1.0, 1.0]) == [0.5, 0.5]
  assert squad_answers._compute_softmax([0.0, np.log(3)]) == [
      pytest.approx(0.25), pytest.approx(0.75)]


def answer_case(shared, folder, has_peak=None, **settings):
  """{id: Answer} of a case's predict file with random logits.

  Where `has_peak` is given, the likeliest token is the first of the document
  for the questions it is true for, else the first of the question.
  """
  cases = shared / "cases"
  examples = squad_examples.read_squad_examples(
      str(cases / folder / "predict.json"), False)
  tokenizer = tokenization.FullTokenizer(str(cases / "_shared" / "vocab.txt"))
  features = list(squad_data.iterate_features(
      examples, tokenizer, squad_data.FeatureSettings(64, 16, 20), False))
  logits = np.random.RandomState(0).normal(
      size=(len(features), 2, 64)).astype(np.float32)
  for feature, pair in zip(features, logits):
    if has_peak:
      pair[:, min(feature.token_to_orig_map)
           if has_peak(feature.example_index) else 1] = 9.0
  groups = squad_answers._group_by_question(examples, features, [
      RawResult(feature.unique_id, *pair)
      for feature, pair in zip(features, logits)])
  answers = squad_answers.iterate_answers(groups, AnswerSettings(**settings))
  return collections.OrderedDict(
      (answer.qas_id, answer) for answer in answers)


@pytest.mark.parametrize("settings", [{"n_best_size": 1},
                                      {"max_answer_length": 0}])
def test_case_without_nonnull_candidate(shared, settings):
  """case 01: the best start of every other question is in the question."""
  answers = answer_case(shared, "01-squad2-no-nonnull-candidate",
                        has_peak=lambda index: index % 2 == 0,
                        version_2_with_negative=True, **settings)
  assert len(answers) == 30
  assert all(np.isfinite(answer.null_odds) for answer in answers.values())
  for index, answer in enumerate(answers.values()):
    is_answered = "n_best_size" in settings and index % 2 == 0
    assert bool(answer.text) == is_answered


def test_case_with_empty_contexts(shared, caplog):
  folder = "02-squad-empty-context"
  with caplog.at_level(logging.WARNING):
    answers = answer_case(shared, folder, version_2_with_negative=True,
                          null_score_diff_threshold=1e3)
    assert [answers[key].text for key in ("e1", "e2", "e3")] == [""] * 3
    assert answers["ok"].text
    (record,) = caplog.records
    assert "have a context without words" in record.getMessage()
    caplog.clear()
    answers = answer_case(shared, folder)
  assert [answers[key].text for key in ("e1", "e2", "e3")] == ["empty"] * 3
  assert answers["ok"].text in "the boat is blue"
  assert len(caplog.records) == 2
  assert "e1, e2, e3" in caplog.text


def test_span_ranking_does_not_change_the_logits():
  """Choosing in float32 still reports the float32 values, as float64."""
  start, end = (np.array(column, np.float32) for column in
                make_result({4: 0.1}, {4: 0.2})[1:])
  spans = list(squad_spans.rank_spans(
      make_feature(), RawResult(1, start, end), 20, 30))
  assert spans[0][3:] == (float(np.float32(0.1)), float(np.float32(0.2)),
                          float(np.float32(0.1)) + float(np.float32(0.2)))
