"""Users' failures with data (../shared/cases), read as they are and strictly.

Here the readers are asked; what programs make of the cases is in the tests
that TESTED_ELSEWHERE names.
"""
import pytest

from conftest import ROOT
from multigpu.errors import UserError
from tasks import pretraining_pipeline
from tasks import squad_examples
from tasks.classifier_processors import MrpcProcessor
from tasks.pretraining_pairs import InstanceSettings


def read_squad(path, strict, is_training=False, version_2=False):
  return len(squad_examples.read_squad_examples(str(path), is_training,
                                                version_2, strict))


def read_mrpc(path, strict):
  processor = MrpcProcessor()
  processor.strict = strict
  name = path.name[:-len(".tsv")]
  return len(getattr(processor, "get_%s_examples" % name)(str(path.parent)))


def read_text(path, strict, tmp_path):
  return pretraining_pipeline.create_records(
      pretraining_pipeline.CorpusSettings(
          [str(path)], [str(tmp_path / "records")],
          str(path.parent.parent / "_shared" / "vocab.txt"), strict=strict),
      InstanceSettings(64, 10, 5, 0.15, 0.1, False)).instances


# (file of a case, what reading it gives: a number of examples or the message
# of an error, the same where --strict is set)
CASES = [
    ("01/predict.json", 30, 30),
    ("02/predict.json", 4, "read 4, of these 2 have a context without words"),
    ("07/predict.json", 5, 5),
    ("09/train.json", 1, 1),
    ("11/train.tsv", 6, "skipped 3: blank .line 5, 9, 10"),
    ("14/train.tsv", 2, "line 1: skipped as the header"),
    ("14/test.tsv", 2, "line 1: skipped as the header"),
    ("16/train.tsv", "train.tsv, line 5: byte 0xe9 is not UTF-8", None),
    ("17/test.tsv", 6, 6), ("19/test.tsv", 7, 7),
    ("21/dev.tsv", "dev.tsv holds 0 examples", None),
    ("23/test.tsv", 11, 11),
    ("40/corpus.txt", 100, 100),
    ("42/bad_utf8.txt", "bad_utf8.txt, line 2: byte 0xe9", None),
    ("42/empty.txt", "no sentence in .*empty.txt", None),
    ("42/only_blank.txt", "no sentence in .*only_blank.txt", None),
    ("42/only_control.txt", "no sentence in .*only_control.txt",
     "skipped [0-9]+ lines of characters that BERT drops.*only_control.txt, "
     "line 1"),
    ("42/one_char_docs.txt", 15, 15), ("42/crlf.txt", 15, 15)]


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
@pytest.mark.parametrize("name, lenient, strictly", CASES,
                         ids=[case[0] for case in CASES])
def test_files_of_the_cases(shared, tmp_path, name, lenient, strictly, strict):
  number, file_name = name.split("/")
  (folder,) = (shared / "cases").glob(number + "-*")
  path = folder / file_name
  wanted = strictly if strict and strictly is not None else lenient

  def read():
    if path.suffix == ".json":
      return read_squad(path, strict, is_training=file_name == "train.json")
    if path.suffix == ".tsv":
      return read_mrpc(path, strict)
    return read_text(path, strict, tmp_path)

  if isinstance(wanted, int):
    assert read() == wanted
    return
  with pytest.raises(UserError, match=wanted):
    read()
  assert not list(tmp_path.iterdir())


# Case -> tests of the whole behaviour.
TESTED_ELSEWHERE = {
    "01": "test_case_01_no_candidate_but_null",
    "02": "test_case_02_empty_context",
    "04": "test_final_text_of_users_reports",
    "07": "test_case_07_without_answers",
    "09": "test_case_09_stride_below_one",
    "11": "test_rows_are_counted", "14": "test_rows_are_counted",
    "16": "test_wrong_input_is_answered_before_any_work",
    "17": "test_rows_are_counted",
    "19": "test_case_19_trains_evaluates_and_predicts_empty_texts",
    "21": "test_wrong_input_is_answered_before_any_work",
    "23": "test_case_63_evaluations_are_equal",
    "25": "test_case_25_the_data_of_this_run_is_used",
    "26": "test_wrong_input_is_answered_before_any_work",
    "32": "test_strings_that_trouble_users",
    "40": "test_blank_lines_between_sentences",
    "42": "test_odd_corpora",
    "44": "test_random_words_may_be_special_as_in_googles_program",
    "47": "test_trains_and_evaluates_equally_on_one_and_two",
    "48": "test_memory_does_not_grow_with_dupe_factor"}


def test_the_other_tests_exist(shared):
  text = "".join(path.read_text(encoding="utf-8")
                 for path in (ROOT / "tests").glob("test_*.py"))
  for number, name in TESTED_ELSEWHERE.items():
    assert len(list((shared / "cases").glob(number + "-*"))) == 1
    assert "\ndef %s(" % name in text, name
  for case in CASES:
    assert case[0].split("/")[0] in TESTED_ELSEWHERE, case
