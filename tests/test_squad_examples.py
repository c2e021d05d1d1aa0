"""tasks/squad_examples.py: what is read from SQuAD files, what is refused."""
import json
import logging
import re

import pytest

from multigpu.errors import UserError
from tasks import squad_data


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


def test_words_of_a_context(tmp_path):
  """No-break space stays in a word; positions count from any blank."""
  context = "\t the\r\nboat\u00a0is \u202f blue "
  for answer, words in ((("boat", 7), (1, 1)), (("is", 12), (1, 1)),
                        ((" blue", 16), (1, 2)), (("the", 2), (0, 0)),
                        (("boat\u00a0is \u202f blue", 7), None),
                        (("e\r\nboat", 4), (0, 1))):
    path = write_squad(tmp_path, make_question(context, answer))
    examples = squad_data.read_squad_examples(path, True)
    if words is None:  # the answer's words are split at the no-break space
      assert examples == []
      continue
    assert examples[0].doc_tokens == ["the", "boat\u00a0is", "blue"]
    assert (examples[0].start_position, examples[0].end_position) == words
    assert examples[0].orig_answer_text == answer[0]


def test_answers_that_are_not_there_are_counted_and_named(tmp_path, caplog):
  answers = {"ok": ("boat", 4), "elsewhere": ("blue", 4), "behind": ("", 99),
             "far": ("blue", 999), "over": ("blue!", 12), "empty": ("", 4),
             "before": ("the", -16), "fine": ("blue", 12)}
  path = write_squad(tmp_path, *(
      make_question(answer=answer, id=qas_id)
      for qas_id, answer in answers.items()))
  with caplog.at_level(logging.WARNING):
    examples = squad_data.read_squad_examples(path, is_training=True)
  assert [example.qas_id for example in examples] == ["ok", "fine"]
  (record,) = caplog.records
  message = record.getMessage()
  assert "read 8, kept 2, skipped 6" in message and path in message
  assert message.endswith("elsewhere, behind, far, over, empty, before")
  caplog.clear()
  # Their answers do not matter in prediction.
  assert len(squad_data.read_squad_examples(path, is_training=False)) == 8
  assert not caplog.records


def test_answers_of_characters_that_are_dropped(tmp_path):
  """There is no word piece to learn as the answer."""
  path = write_squad(tmp_path, *(
      make_question("the \x1b boat \u0301 , x", answer, id=answer[0])
      for answer in (("\x1b", 4), ("\u0301", 11), (",", 13), ("x", 15),
                     ("\x1b boat", 4))))
  assert [example.qas_id for example in squad_data.read_squad_examples(
      path, is_training=True)] == [",", "x", "\x1b boat"]


def test_answer_from_before_the_first_word(tmp_path):
  path = write_squad(tmp_path, make_question(" the", (" the", 0)))
  assert squad_data.read_squad_examples(path, is_training=True) == []


def test_many_skipped_ids_are_cut_short(tmp_path, caplog):
  path = write_squad(tmp_path, *(
      make_question(answer=("x", 0), id="id%d." % i) for i in range(60)))
  squad_data.read_squad_examples(path, is_training=True)
  assert caplog.records[0].getMessage().endswith("id49. and 10 more")


def test_long_ids_are_cut_short(tmp_path, caplog):
  path = write_squad(tmp_path, make_question(answer=("x", 0), id="i" * 9999))
  squad_data.read_squad_examples(path, is_training=True)
  assert caplog.records[0].getMessage().endswith("ids " + "i" * 60 + "...")
  path = write_squad(tmp_path, make_question(question=3, id="i" * 9999))
  with pytest.raises(UserError) as caught:
    squad_data.read_squad_examples(path, is_training=True)
  assert len(str(caught.value)) < 500


def test_repeated_ids_are_named(tmp_path, caplog):
  path = write_squad(tmp_path, make_question(id="twin"), make_question(),
                     make_question(id="twin"))
  assert len(squad_data.read_squad_examples(path, is_training=False)) == 3
  (record,) = caplog.records
  assert record.getMessage().endswith("ids twin")


def test_questions_of_a_paragraph_share_their_document(tmp_path):
  record = make_question()
  record["qas"] *= 2
  first, second = squad_data.read_squad_examples(
      write_squad(tmp_path, record), is_training=False)
  assert first.doc_tokens is second.doc_tokens


def test_impossible_only_with_the_flag(tmp_path):
  path = write_squad(tmp_path, make_question(is_impossible=True))
  (heeded,) = squad_data.read_squad_examples(path, True, True)
  assert heeded.is_impossible and heeded.orig_answer_text == ""
  assert (heeded.start_position, heeded.end_position) == (-1, -1)
  for example in (squad_data.read_squad_examples(path, True, False)[0],
                  squad_data.read_squad_examples(path, False, True)[0]):
    assert example.is_impossible is False


@pytest.mark.parametrize("fields, wanted", [
    ({"answers": []}, "0 answers.*--version_2_with_negative=True"),
    ({"answers": [{"text": "the", "answer_start": 0}] * 2}, "2 answers"),
    ({"answers": [{"text": "the"}]}, "'answer_start' is missing"),
    ({"answers": [{"text": 3, "answer_start": 0}]}, "'text' must be a string"),
    ({"answers": [{"text": "the", "answer_start": "0"}]},
     "'answer_start' must be a whole number, found '0'"),
    ({"answers": [{"text": "the", "answer_start": True}]},
     "'answer_start' must be a whole number, found True"),
    ({"answers": [{"text": "the", "answer_start": float("nan")}]},
     "'answer_start' must be a whole number, found nan"),
    ({"answers": {"text": ["the"], "answer_start": [0]}},
     "'answers' must be a list, found"),
    ({"answers": ["the"]}, "expected a record with 'text', found 'the'"),
    ({"question": None}, "'question' must be a string, found None"),
])
def test_wrong_questions_are_named(tmp_path, fields, wanted):
  path = write_squad(tmp_path, make_question(), make_question(**fields))
  with pytest.raises(UserError, match=wanted) as caught:
    squad_data.read_squad_examples(path, is_training=True)
  message = str(caught.value)
  assert message.startswith(path + ", at data[0].paragraphs[1].qas[0]")
  assert "(id 'q')" in message


def test_wrong_impossible_is_named(tmp_path):
  path = write_squad(tmp_path, make_question(is_impossible="false"))
  with pytest.raises(UserError, match="'is_impossible' must be true or false"):
    squad_data.read_squad_examples(path, True, True)


@pytest.mark.parametrize("content, wanted", [
    (b"", "not JSON.*line 1 column 1"),
    (b'{"data": [', "not JSON.*line 1"),
    (b'{"data":\n"\xff"}', "not UTF-8 text .byte 0xff at offset 10, line 2"),
    ('{"data": []}'.encode("utf-16"), "byte 0xff at .*iconv -f UTF-16 -t"),
    (b'{"data": [\n  oops]}', "not JSON.*line 2 column 3"),
    (b'{"data": 1}\n{"data": 2}', "not JSON.*Extra data: line 2 column 1"),
    (b'{"data": "\0"}', "not JSON.*line 1 column 11"),
    (b"[" * 100000, "nested too deeply"),
    (b'{"data": ' + b"[" * 500 + b"]" * 500 + b"}",
     r"at data\[0\]: expected a record with 'paragraphs', found \[\[\["),
    (b"[]", "at the top level: expected a record with 'data'"),
    (b'{"version": "1.1"}', r"'data' is missing, there is only \['version'\]"),
    (b'{"data": [{"paragraphs": {}}]}',
     r"at data\[0\]: 'paragraphs' must be a list"),
    (b'{"data": [{"paragraphs": [{"qas": []}]}]}',
     r"at data\[0\]\.paragraphs\[0\]: 'context' is missing"),
    (b'{"data": [{"paragraphs": [{"context": "", "qas": [{}]}]}]}',
     r"at data\[0\]\.paragraphs\[0\]\.qas\[0\]: 'id' is missing"),
])
def test_files_in_another_format(tmp_path, content, wanted):
  path = tmp_path / "squad.json"
  path.write_bytes(content)
  with pytest.raises(UserError, match=wanted) as caught:
    squad_data.read_squad_examples(str(path), is_training=False)
  assert str(path) in str(caught.value)


def test_missing_file(tmp_path):
  with pytest.raises(UserError, match="cannot read .*none.json"):
    squad_data.read_squad_examples(str(tmp_path / "none.json"), False)


def test_byte_order_mark(tmp_path):
  path = write_squad(tmp_path, make_question())
  with open(path, "rb") as reader:
    content = reader.read()
  with open(path, "wb") as writer:
    writer.write(b"\xef\xbb\xbf" + content)
  assert len(squad_data.read_squad_examples(path, is_training=False)) == 1


@pytest.mark.parametrize("is_training, paragraphs, message", [
    (True, [dict(id="far", answer=("blue", 99)), dict(id="ok")],
     "read 2, kept 1, skipped 1: .*: ids far"),
    (False, [dict(id="twin"), dict(id="twin")], "read 2, of these 1 have the "
     "id of an earlier one.*: ids twin"),
    (False, [dict(id=1), dict(id="1")], "1 have the id of an earlier one"),
    (False, [dict(id="bare", context=" \t"), dict(id="ok")],
     "read 2, of these 1 have a context without words.*: ids bare")])
def test_strict(tmp_path, caplog, is_training, paragraphs, message):
  """What is a warning becomes an error."""
  path = write_squad(tmp_path, *(make_question(**fields)
                                 for fields in paragraphs))
  squad_data.read_squad_examples(path, is_training)
  (record,) = caplog.records
  assert re.search(message, record.getMessage())
  with pytest.raises(UserError, match=message + ".*--strict=True") as caught:
    squad_data.read_squad_examples(path, is_training, strict=True)
  assert str(caught.value).startswith(path)


def test_files_without_a_finding_are_no_error(tmp_path, caplog):
  path = write_squad(tmp_path, make_question(), make_question(id="other"))
  for is_training in (True, False):
    assert len(squad_data.read_squad_examples(path, is_training,
                                              strict=True)) == 2
  assert not caplog.records


@pytest.mark.parametrize("is_training", [True, False])
def test_version_2_without_the_flag(tmp_path, caplog, is_training):
  path = write_squad(tmp_path, make_question(is_impossible=True))
  squad_data.read_squad_examples(path, is_training)
  (record,) = caplog.records
  assert "--version_2_with_negative=True" in record.getMessage()
  assert record.getMessage().endswith("ids q")


def test_version_1_with_the_flag(tmp_path, caplog):
  path = write_squad(tmp_path, make_question())
  squad_data.read_squad_examples(path, True, True)
  (record,) = caplog.records
  assert "no question is marked is_impossible" in record.getMessage()
  with pytest.raises(UserError, match='mark it "is_impossible": true'):
    squad_data.read_squad_examples(
        write_squad(tmp_path, make_question(answers=[])), True, True)
