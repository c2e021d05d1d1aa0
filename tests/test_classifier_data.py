"""tasks/classifier_data.py: examples -> features -> records."""
import json
import logging

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import tokenization
from multigpu.errors import UserError
from tasks import classifier_data
from tasks.classifier_data import (InputExample, LabelSet, PaddingInputExample,
                                   convert_examples_to_features)

MARKERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = "the boat is blue a note on river".split()
PAD, UNK, CLS, SEP = range(4)


@pytest.fixture
def tokenizer(tmp_path):
  return make_tokenizer(tmp_path, MARKERS + WORDS)


def make_tokenizer(folder, entries):
  path = folder / "vocab.txt"
  path.write_text("\n".join(entries) + "\n")
  return tokenization.FullTokenizer(str(path))


def make_features(tokenizer, *examples, labels=("0", "1"), length=8):
  return list(classifier_data.iterate_features(
      [InputExample("e%d" % index, *example)
       for index, example in enumerate(examples)],
      labels, length, tokenizer, show_progress=False))


@pytest.mark.parametrize("name, lower", [
    ("uncased", True), ("cased", False), ("chinese", True),
    ("multi_cased", False), ("tiny", True)])
def test_features_of_google(shared, name, lower):
  folder = shared / "golden" / "classifier_features"
  made = json.loads((folder / "examples.json").read_text(encoding="utf-8"))
  vocab = (shared / "golden" / "model" / "vocab.txt" if name == "tiny"
           else shared / "data" / "vocab" / name)
  if vocab.is_dir():
    (vocab,) = vocab.glob("*.txt")
  examples = [InputExample(**fields) for fields in made["examples"]]
  features = convert_examples_to_features(
      examples + [PaddingInputExample()], made["label_list"],
      made["max_seq_length"], tokenization.FullTokenizer(str(vocab), lower))
  wanted = np.load(str(folder / ("features_%s.npz" % name)))
  assert len(features) == 61
  for field in wanted.files:
    found = np.array([getattr(feature, field) for feature in features])
    np.testing.assert_array_equal(found, wanted[field], err_msg=field)


def test_a_pair(tokenizer):
  (feature,) = make_features(tokenizer, ("The boat", "is blue", "1"))
  assert feature.input_ids == [CLS, 4, 5, SEP, 6, 7, SEP, PAD]
  assert feature.input_mask == [1, 1, 1, 1, 1, 1, 1, 0]
  assert feature.segment_ids == [0, 0, 0, 0, 1, 1, 1, 0]
  assert (feature.label_id, feature.is_real_example) == (1, True)


@pytest.mark.parametrize("text_b", [None, "", "  ", "\u200b"])
def test_an_empty_second_text_is_none(tokenizer, text_b):
  boat, nothing = make_features(tokenizer, ("boat", text_b, "0"),
                                ("", text_b, "0"))
  assert boat.input_ids == [CLS, 5, SEP] + [PAD] * 5
  assert boat.segment_ids == [0] * 8
  assert nothing.input_ids == [CLS, SEP] + [PAD] * 6
  assert sum(nothing.input_mask) == 2


def test_single_text_uses_the_room_of_the_missing_marker(tokenizer):
  (feature,) = make_features(tokenizer, ("the boat is blue", None, "0"),
                             length=5)
  assert feature.input_ids == [CLS, 4, 5, 6, SEP]


@hypothesis.given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_truncation_takes_from_the_longer(length_a, length_b, max_length):
  tokens_a, tokens_b = list(range(length_a)), list(range(length_b))
  classifier_data._truncate_seq_pair(tokens_a, tokens_b, max_length)
  while length_a + length_b > max_length:  # one by one, as it is defined
    if length_a > length_b:
      length_a -= 1
    else:
      length_b -= 1
  assert tokens_a == list(range(length_a))
  assert tokens_b == list(range(length_b))


@pytest.mark.parametrize("length", [-1, 0, 2])
def test_no_room(tokenizer, length):
  with pytest.raises(UserError, match="--max_seq_length=%d leaves" % length):
    # At once, before any feature is asked for.
    classifier_data.iterate_features([], ["0"], length, tokenizer)
  with pytest.raises(UserError, match="--max_seq_length"):
    classifier_data.convert_single_example(
        0, InputExample("e", "boat", None, "0"), ["0"], length, tokenizer)


def test_regression(tokenizer):
  labels = LabelSet(classifier_data.REGRESSION)
  features = make_features(tokenizer, ("boat", None, "3.25"),
                           ("boat", None, 4), labels=labels)
  assert [feature.label_id for feature in features] == [3.25, 4.0]
  assert labels.num_outputs == 1
  table = classifier_data.record_table(8, labels)
  assert table["label_ids"] == ((), "float32")
  record = classifier_data.feature_to_record(features[0])
  assert record["label_ids"] == [3.25] and list(record) == list(table)


@pytest.mark.parametrize("label", ["high", "", None, "nan", "inf"])
def test_regression_needs_numbers(tokenizer, label):
  with pytest.raises(UserError, match="example e0: label .*wanted a number"):
    make_features(tokenizer, ("boat", None, label),
                  labels=LabelSet(classifier_data.REGRESSION))


def test_several_labels(tokenizer):
  labels = LabelSet(classifier_data.MULTI_LABEL, ("x", "y", "z"))
  features = make_features(
      tokenizer, *(("boat", None, label)
                   for label in ("z, x", "y", "", "y,y,")), labels=labels)
  assert [feature.label_id for feature in features] == [
      [1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
  assert classifier_data.record_table(8, labels)["label_ids"] == (
      (3,), "float32")
  record = classifier_data.feature_to_record(features[0])
  assert record["label_ids"] == [1, 0, 1]


def test_class_records(tokenizer):
  table = classifier_data.record_table(8, ["0", "1"])
  assert table == {
      "input_ids": ((8,), "int64"), "input_mask": ((8,), "int64"),
      "segment_ids": ((8,), "int64"), "label_ids": ((), "int64"),
      "is_real_example": ((), "int64")}
  (feature,) = make_features(tokenizer, ("boat", None, "1"))
  record = classifier_data.feature_to_record(feature)
  assert list(record) == list(table)
  assert record["label_ids"] == [1] and record["is_real_example"] == [1]


@pytest.mark.parametrize("kind, zero", [
    (classifier_data.CLASSES, 0), (classifier_data.REGRESSION, 0.0),
    (classifier_data.MULTI_LABEL, [0.0, 0.0])])
def test_padding(tokenizer, kind, zero):
  names = () if kind == classifier_data.REGRESSION else ("x", "y")
  (feature,) = convert_examples_to_features(
      [PaddingInputExample()], LabelSet(kind, names), 4, tokenizer)
  assert feature.input_ids == feature.input_mask == feature.segment_ids == (
      [0] * 4)
  assert feature.label_id == zero
  assert classifier_data.feature_to_record(feature)["is_real_example"] == [0]


@pytest.mark.parametrize("kind", [classifier_data.CLASSES,
                                  classifier_data.MULTI_LABEL])
@pytest.mark.parametrize("label", ["yes", None])
def test_unknown_label_is_named(tokenizer, kind, label):
  with pytest.raises(UserError) as caught:
    make_features(tokenizer, ("boat", None, "0"), ("boat", None, label),
                  labels=LabelSet(kind, ("0", "1")))
  assert str(caught.value) == (
      "example e1: unknown label %r, wanted one of: '0', '1'" % label)


def test_many_labels_are_cut_short(tokenizer):
  with pytest.raises(UserError, match="'19' and 57 more$"):
    make_features(tokenizer, ("boat", None, "?"),
                  labels=[str(number) for number in range(77)])


def test_vocabulary_without_markers(tmp_path):
  tokenizer = make_tokenizer(tmp_path, ["boat", "[UNK]"])
  with pytest.raises(UserError, match="--vocab_file.*CLS"):
    make_features(tokenizer, ("boat", None, "0"))


def test_features_stream(tokenizer):
  """An example is read when its feature is asked for, not before."""
  taken = []

  def examples():
    for number in range(3):
      taken.append(number)
      yield InputExample(str(number), "boat", None, "0")

  features = classifier_data.iterate_features(examples(), ["0"], 8, tokenizer,
                                              show_progress=False)
  assert taken == []
  next(features)
  assert taken == [0]
  assert len(list(features)) == 2


def test_first_examples_are_logged(tokenizer, caplog):
  with caplog.at_level(logging.INFO):
    make_features(tokenizer, *[("boat", "blue", "1")] * 7)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == 5
  assert messages[0] == ("example e0: [CLS] boat [SEP] blue [SEP], label 1 "
                         "(id 1)")
