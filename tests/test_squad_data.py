"""tasks/squad_data.py and what it stands on: files, windows, records."""
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization
from benchmarks import squad_features as plain
from multigpu.errors import UserError
from tasks import squad_data, squad_pieces, squad_windows

SETS = ("squad_v1_dev", "squad_v2_train", "squad_v1_train", "xquad_zh")
ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "a", "is", "blue",
           "boat", "##s", "what", "?", ".", "(", ")", "18", "##95", "on", "b"]


@pytest.fixture(name="tokenizer", scope="module")
def make_tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
  path.write_text("\n".join(ENTRIES), encoding="utf-8")
  return tokenization.FullTokenizer(str(path))


def make_features(examples, tokenizer, lengths, is_training=False):
  return list(squad_data.iterate_features(
      examples, tokenizer, squad_data.FeatureSettings(*lengths), is_training,
      show_progress=False))


def make_question(context="the boat is blue", answer=("blue", 12), **fields):
  """A paragraph record with one question."""
  question = {"id": "q", "question": "what is the boat?",
              "answers": [{"text": answer[0], "answer_start": answer[1]}]}
  question.update(fields)
  return {"context": context, "qas": [question]}


def write_squad(folder, *paragraphs):
  path = folder / "squad.json"
  path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
  return str(path)


def read_json(path):
  return json.loads(path.read_text(encoding="utf-8"))


def check_examples(examples, wanted):
  documents = []
  assert len(examples) == len(wanted) > 0
  for example, fields in zip(examples, wanted):
    words = fields["doc_tokens"]
    if isinstance(words, dict):
      words = documents[words["same_as_example"]]
    documents.append(words)
    assert vars(example) == dict(fields, doc_tokens=words)


def check_feature(feature, tables, arrays, row, is_training):
  first = tables["first_doc_token"]
  assert feature.tokens == tables["tokens"].split(" ")
  assert feature.token_to_orig_map == dict(
      enumerate(tables["token_to_orig"], first))
  assert feature.token_is_max_context == {
      position: mark == "1"
      for position, mark in enumerate(tables["is_max_context"], first)}
  for name in ("input_ids", "input_mask", "segment_ids"):
    assert getattr(feature, name) == arrays[name][row].tolist(), name
  assert feature.unique_id == arrays["unique_ids"][row] == tables["unique_id"]
  names = ["example_index", "doc_span_index", "is_impossible"]
  if is_training:
    names += ["start_position", "end_position"]
  else:
    assert feature.start_position is None and feature.end_position is None
  for name in names:
    assert getattr(feature, name) == arrays[name][row], name


@pytest.mark.parametrize("name", SETS)
def test_golden_features(shared, name):
  folder = shared / "golden" / "squad_features"
  flags = read_json(folder / "settings.json")[name]
  examples = squad_data.read_squad_examples(
      str(folder / (name + "_input.json")), flags["is_training"],
      flags["version_2_with_negative"])
  check_examples(examples, read_json(folder / (name + "_examples.json")))
  tokenizer = tokenization.FullTokenizer(
      str(shared / "data" / "vocab" / flags["vocab"] / "vocab.txt"),
      flags["do_lower_case"])
  features = []
  squad_data.convert_examples_to_features(
      examples, tokenizer, flags["max_seq_length"], flags["doc_stride"],
      flags["max_query_length"], flags["is_training"], features.append)
  tables = read_json(folder / (name + "_features.json"))
  arrays = dict(np.load(str(folder / (name + "_features.npz"))))
  assert len(features) == len(tables) == flags["features"]
  for row, feature in enumerate(features):
    check_feature(feature, tables[row], arrays, row, flags["is_training"])


def test_as_a_straightforward_program(tokenizer, tmp_path):
  """Several questions on long documents, narrow windows, at both ends."""
  paragraphs = []
  for size in (1, 7, 30, 31, 55):
    words = ["boats%s" % ("." * (i % 3)) for i in range(size)]
    context = "  ".join(words) + " "
    for place in (0, size // 2, size - 1):
      start = sum(len(word) + 2 for word in words[:place])
      paragraphs.append(make_question(context, ("boats", start)))
  path = write_squad(tmp_path, *paragraphs)
  examples = squad_data.read_squad_examples(path, True)
  for lengths in ((16, 3, 5), (24, 50, 8), (64, 1, 4)):
    plain.assert_same_features(
        plain.featurize_plainly(plain.read_plainly(path), tokenizer,
                                squad_data.FeatureSettings(*lengths)),
        iter(make_features(examples, tokenizer, lengths, True)))


@pytest.mark.parametrize("stride, windows, with_answer", [
    (64, 3, 1), (16, 3, 1), (4, 9, 2), (1, 32, 5)])
def test_case_window_stride(shared, stride, windows, with_answer):
  examples = squad_data.read_squad_examples(
      str(shared / "cases" / "09-squad-window-stride" / "train.json"), True)
  tokenizer = tokenization.FullTokenizer(
      str(shared / "cases" / "_shared" / "vocab.txt"))
  features = make_features(examples, tokenizer, (32, stride, 8), True)
  assert len(features) == windows
  spans = [(f.start_position, f.end_position) for f in features]
  assert sum(span != (0, 0) for span in spans) == with_answer
  for feature, (start, end) in zip(features, spans):
    if start:
      assert "".join(feature.tokens[start:end + 1]) == "river##3##5"
  covered = {word for f in features for word in f.token_to_orig_map.values()}
  assert covered == set(range(40))


def test_case_empty_context(shared):
  examples = squad_data.read_squad_examples(
      str(shared / "cases" / "02-squad-empty-context" / "predict.json"), False)
  tokenizer = tokenization.FullTokenizer(
      str(shared / "cases" / "_shared" / "vocab.txt"))
  features = make_features(examples, tokenizer, (64, 16, 20))
  assert [f.example_index for f in features] == [0, 1, 2, 3]
  assert features[0].tokens == "[CLS] what is blue ? [SEP] [SEP]".split()
  for feature in features[:3]:
    assert feature.tokens[-2:] == ["[SEP]", "[SEP]"]
    assert feature.token_to_orig_map == feature.token_is_max_context == {}
    assert sum(feature.input_mask) == len(feature.tokens)
    assert sum(feature.segment_ids) == 1
  assert len(features[3].token_to_orig_map) == 4


def test_case_predict_without_answers(shared):
  examples = squad_data.read_squad_examples(
      str(shared / "cases" / "07-squad-predict-without-answers"
          / "predict.json"), False)
  assert [example.qas_id for example in examples] == list("abcde")
  tokenizer = tokenization.FullTokenizer(
      str(shared / "cases" / "_shared" / "vocab.txt"))
  features = make_features(examples, tokenizer, (64, 16, 20))
  assert features[1].input_ids == features[2].input_ids
  for feature in features[3:]:
    assert feature.tokens[:3] == ["[CLS]", "[SEP]", "the"]
    assert feature.tokens[-1] == "[SEP]"


def test_empty_document_in_training(tokenizer, tmp_path):
  path = write_squad(tmp_path, make_question(
      context=" \n", answers=[], is_impossible=True))
  examples = squad_data.read_squad_examples(path, True, True)
  (feature,) = make_features(examples, tokenizer, (16, 4, 8), True)
  assert feature.tokens[-2:] == ["[SEP]", "[SEP]"]
  assert (feature.start_position, feature.end_position) == (0, 0)
  assert feature.is_impossible is True


@pytest.mark.parametrize("lengths, flag", [
    ((32, 0, 8), "--doc_stride=0,"), ((32, -1, 8), "--doc_stride=-1,"),
    ((11, 4, 8), "--max_seq_length=11 .*--max_seq_length=12 or more"),
    ((32, 4, 0), "--max_query_length=0,"),
])
def test_wrong_settings(lengths, flag):
  """Refused at the call, before the first feature is asked for."""
  with pytest.raises(UserError, match=flag):
    squad_data.iterate_features(
        iter(()), None, squad_data.FeatureSettings(*lengths))
  squad_data.check_settings(squad_data.FeatureSettings(12, 1, 8))


def test_vocabulary_without_markers(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("[UNK]\n[CLS]\n", encoding="utf-8")
  example = squad_data.SquadExample("q", "what?", ["boat"])
  with pytest.raises(UserError, match=r"--vocab_file .*'\[SEP\]'"):
    make_features([example], tokenization.FullTokenizer(str(path)), (16, 4, 8))


def test_long_question_is_cut(tokenizer):
  example = squad_data.SquadExample("q", "what is the boat on", ["blue"])
  (feature,) = make_features([example], tokenizer, (16, 4, 3))
  assert feature.tokens == "[CLS] what is the [SEP] blue [SEP]".split()
  assert feature.input_ids == [2, 10, 6, 4, 3, 7, 3] + [0] * 9
  assert feature.input_mask == [1] * 7 + [0] * 9
  assert feature.segment_ids == [0] * 5 + [1] * 2 + [0] * 9
  assert feature.token_to_orig_map == {5: 0}
  assert feature.unique_id == 1000000000


def test_features_are_streamed(tokenizer):
  """An example is not asked for before the features of those before it."""
  asked = []

  def make_examples():
    for number in range(3):
      asked.append(number)
      yield squad_data.SquadExample(str(number), "what?", ["boat"] * 20)

  stream = squad_data.iterate_features(
      make_examples(), tokenizer, squad_data.FeatureSettings(16, 4, 4),
      show_progress=False)
  assert not asked
  assert next(stream).unique_id == squad_data.FIRST_UNIQUE_ID
  assert asked == [0]
  assert [f.unique_id - squad_data.FIRST_UNIQUE_ID for f in stream] == list(
      range(1, 12))


def test_remembered_words_are_bounded(tokenizer, monkeypatch):
  examples = [squad_data.SquadExample("q", "what?", ["boat" + "s" * i] * 2)
              for i in range(9)]
  wanted = [f.tokens for f in make_features(examples, tokenizer, (32, 4, 4))]
  sizes = []
  monkeypatch.setattr(squad_pieces, "_MAX_KNOWN_WORDS", 2)
  tokenize_document = squad_data.tokenize_document
  monkeypatch.setattr(
      squad_data, "tokenize_document",
      lambda words, known: (tokenize_document(words, known),
                            sizes.append(len(known)))[0])
  got = [f.tokens for f in make_features(examples, tokenizer, (32, 4, 4))]
  assert got == wanted
  assert len(sizes) == 9 and max(sizes) <= 3


def test_progress_bar(tokenizer, capsys):
  examples = [squad_data.SquadExample("q", "what?", ["boat"])]
  lengths = squad_data.FeatureSettings(16, 4, 4)
  list(squad_data.iterate_features(examples, tokenizer, lengths))
  assert "1/1" in capsys.readouterr().err
  list(squad_data.iterate_features(examples, tokenizer, lengths,
                                   show_progress=False))
  assert capsys.readouterr().err == ""


@pytest.mark.parametrize("pieces, answer, span", [
    ("( 18 ##95 ) .", "1895", (1, 2)),
    ("the boat ##s", "boats", (1, 2)),
    ("the boat", "boat a", (0, 1)),
    ("the boat ##s", "boat", (1, 1)),
    ("a the a", "a", (0, 0)),
    ("boat ##s", "boa", (0, 1)),
    ("the boat", "\u200b", (0, 1)),
])
def test_improve_answer_span(tokenizer, pieces, answer, span):
  before, after = ["on", "."], ["a", "1"]
  document = before + pieces.split() + after
  assert squad_data._improve_answer_span(
      document, 2, 1 + len(pieces.split()), tokenizer, answer) == (
          span[0] + 2, span[1] + 2)


def test_is_max_context():
  """"bought" has one word to its left in C and three to its right."""
  text = "the man went to the store and bought a gallon of milk".split()
  spans = [squad_windows.DocSpan(0, 5), squad_windows.DocSpan(3, 5),
           squad_windows.DocSpan(6, 5)]
  best = [index for index in range(3) if squad_data._check_is_max_context(
      spans, index, text.index("bought"))]
  assert best == [2]
  # Of equals the first counts.
  spans = [squad_windows.DocSpan(0, 4), squad_windows.DocSpan(1, 4)]
  assert squad_data._check_is_max_context(spans, 0, 2)
  assert not squad_data._check_is_max_context(spans, 1, 2)
  assert not squad_data._check_is_max_context(spans, 0, 9)


@settings(max_examples=100, deadline=None)
@given(num_pieces=st.integers(0, 60), length=st.integers(1, 25),
       stride=st.integers(1, 30))
def test_windows(num_pieces, length, stride):
  plan = squad_windows.plan_windows(num_pieces, length, stride)
  covered = [position for span in plan.spans
             for position in range(span.start, span.start + span.length)]
  assert set(covered) == set(range(num_pieces))
  assert all(span.length <= length for span in plan.spans)
  assert plan.spans[-1].start + plan.spans[-1].length == num_pieces
  marks = dict.fromkeys(covered, 0)
  for index, span in enumerate(plan.spans):
    positions = dict.fromkeys(range(7, 7 + span.length))
    flags = squad_windows.mark_max_context(plan, index, positions)
    assert list(flags) == list(positions)
    for position, flag in flags.items():
      place = position - 7 + span.start
      marks[place] += flag
      assert flag == squad_windows.check_is_max_context(
          plan.spans, index, place)
      assert flag == plain._is_best_plainly(plan.spans, index, place)
  assert set(marks.values()) <= {1}


WORDS = st.sampled_from(["the", "boats.", "18", "\u200b", "(b)", "x", "a?b"])


@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORDS, max_size=40), question=st.lists(WORDS, max_size=8),
       stride=st.integers(1, 20), length=st.integers(8, 24))
def test_any_document(tokenizer, words, question, stride, length):
  example = squad_data.SquadExample("q", " ".join(question), words)
  features = make_features([example], tokenizer, (length, stride, 4))
  seen = set()
  for feature in features:
    assert len(feature.tokens) <= length
    assert (len(feature.input_ids) == len(feature.input_mask)
            == len(feature.segment_ids) == length)
    assert all(0 <= index < len(ENTRIES) for index in feature.input_ids)
    seen.update(feature.token_to_orig_map.values())
  assert seen == {i for i, word in enumerate(words) if word != "\u200b"}


def test_records(tokenizer, tmp_path):
  path = write_squad(tmp_path, make_question())
  examples = squad_data.read_squad_examples(path, True)
  (feature,) = make_features(examples, tokenizer, (16, 4, 8), True)
  record = squad_data.feature_to_record(feature, is_training=True)
  table = squad_data.record_table(16, is_training=True)
  assert list(record) == list(table)
  for name, (shape, dtype) in table.items():
    assert np.shape(record[name]) == (shape or (1,)), name
    assert dtype == "int64"
    assert all(type(value) is int for value in record[name]), name
  assert record["start_positions"] == record["end_positions"] == [10]
  assert record["is_impossible"] == [0]
  assert record["unique_ids"] == [1000000000]
  assert list(squad_data.feature_to_record(feature, False)) == list(
      squad_data.record_table(16, False)) == [
          "unique_ids", "input_ids", "input_mask", "segment_ids"]
  (feature,) = make_features(examples, tokenizer, (16, 4, 8))
  with pytest.raises(ValueError, match="is_training"):
    squad_data.feature_to_record(feature, is_training=True)
