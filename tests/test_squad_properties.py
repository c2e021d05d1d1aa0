"""SQuAD from file to answers on random texts: what holds for each of them."""
import json
import logging
import random

import fuzz_targets
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
import pytest

from tasks import squad_data
from tasks import squad_examples

# Blanks of all sorts, what BERT drops, letters that change their length.
CHARACTERS = st.one_of(
    st.sampled_from("the boat. \t\n\u00a0\u202f\u200b\u0301\u0130\u00df\u8dd1"),
    st.characters())
TEXT = st.one_of(st.text(CHARACTERS, max_size=40),
                 st.lists(st.sampled_from(fuzz_targets.WORDS + ["a.b", "xyz"]),
                          max_size=40).map(" ".join))


@st.composite
def documents(draw):
  """A context with questions; answers stand in it, mostly."""
  context = draw(TEXT)
  questions = []
  for number in range(draw(st.integers(1, 3))):
    first = draw(st.integers(0, len(context)))
    text = context[first:draw(st.integers(first, len(context)))]
    if draw(st.integers(0, 9)) == 0:
      text = draw(TEXT)
    questions.append({
        "id": "q%d" % number, "question": draw(TEXT),
        "answers": [{"text": text, "answer_start": first}]})
  return {"context": context, "qas": questions}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  logger = logging.getLogger("tasks")
  level = logger.level
  logger.setLevel(logging.CRITICAL)
  yield tmp_path_factory.mktemp("squad")
  logger.setLevel(level)


@settings(max_examples=150, deadline=None,
          suppress_health_check=[HealthCheck.too_slow])
@given(document=documents(), stride=st.integers(1, 12),
       version_2=st.booleans())
@example(stride=1, version_2=False, document={"context": "\x1b", "qas": [
    {"id": "q", "question": "",
     "answers": [{"text": "\x1b", "answer_start": 0}]}]})
def test_from_file_to_answers(folder, document, stride, version_2):
  path = folder / "squad.json"
  path.write_text(json.dumps({"data": [{"paragraphs": [document]}]}))
  tokenizer = fuzz_targets.make_tokenizer()
  lengths = squad_data.FeatureSettings(fuzz_targets.SEQ_LENGTH, stride, 5)
  for is_training in (True, False):
    examples = squad_examples.read_squad_examples(str(path), is_training,
                                                  version_2)
    features = list(squad_data.iterate_features(
        examples, tokenizer, lengths, is_training, show_progress=False))
    fuzz_targets.check_features(features, examples, is_training)
  assert len(examples) == len(document["qas"])
  # Each word of the context that has a piece is in a window of each question.
  for index, question in enumerate(examples):
    shown = {word for feature in features if feature.example_index == index
             for word in feature.token_to_orig_map.values()}
    assert shown == {number for number, word in enumerate(question.doc_tokens)
                     if tokenizer.tokenize(word)}
  fuzz_targets.check_answers(examples, features, version_2, random.Random(0))


@settings(max_examples=100, deadline=None)
@given(document=documents())
def test_answers_to_train_on_are_in_the_context(folder, document):
  path = folder / "squad.json"
  path.write_text(json.dumps({"data": [{"paragraphs": [document]}]}))
  for question in squad_examples.read_squad_examples(str(path), True):
    first, last = question.start_position, question.end_position
    assert 0 <= first <= last
    assert " ".join(question.orig_answer_text.split()) in " ".join(
        question.doc_tokens[first:last + 1])
