"""Values of flags, folders and what goes wrong later. No TensorFlow."""
import logging
import os

import pytest

from multigpu import failures
from multigpu import flag_checks
from multigpu import folders
from multigpu.errors import UserError

GOOD = dict(do_train=True, learning_rate=5e-5, num_train_epochs=3.0,
            warmup_proportion=0.1, max_seq_length=128, seed=0)


def warnings_of(caplog, function, *arguments):
  caplog.clear()
  with caplog.at_level(logging.WARNING):
    function(*arguments)
  return [record.getMessage() for record in caplog.records]


def test_good_values_pass(caplog):
  assert not warnings_of(caplog, flag_checks.check, GOOD, list(GOOD))


@pytest.mark.parametrize("flag, value", [
    ("learning_rate", 0.0), ("learning_rate", float("inf")),
    ("learning_rate", float("nan")), ("num_train_epochs", -1.0),
    ("num_train_epochs", float("nan")), ("warmup_proportion", 1.0),
    ("warmup_proportion", -0.1), ("max_seq_length", 2)])
def test_a_wrong_value(flag, value):
  values = dict(GOOD, **{flag: value})
  with pytest.raises(UserError, match="--%s=%s, wanted " % (
      flag, str(value).replace(".", "[.]"))):
    flag_checks.check(values, [flag])
  with pytest.raises(UserError, match=r"\(the default\), wanted"):
    flag_checks.check(values)


def test_training_flags_do_not_matter_without_training():
  flag_checks.check(dict(GOOD, do_train=False, num_train_epochs=0.0))


def test_all_mistakes_come_in_one_message():
  with pytest.raises(UserError) as caught:
    flag_checks.check(dict(GOOD, learning_rate=0.0, num_train_epochs=0.0,
                           max_predictions_per_seq=200))
  assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("changes, given, message", [
    (dict(train_file="x", do_train=False), ["train_file"],
     "--train_file has no effect without --do_train=True."),
    (dict(learning_rate=5.0), [],
     "--learning_rate=5.0 is very high for BERT: was 5.0e-5 meant?"),
    (dict(num_train_steps=100, num_warmup_steps=10000), [],
     "will end at 0.01 of --learning_rate"),
    (dict(masked_lm_prob=0.15, max_seq_length=512, max_predictions_per_seq=20),
     [], "--max_predictions_per_seq=20 masks fewer pieces")])
def test_an_odd_value_is_warned_of(caplog, changes, given, message):
  found = warnings_of(caplog, flag_checks.check, dict(GOOD, **changes), given)
  assert len(found) == 1 and message in found[0]


@pytest.mark.parametrize("length, predictions", [(128, 20), (512, 77),
                                                 (512, 76), (64, 10)])
def test_usual_masks_are_not_odd(caplog, length, predictions):
  assert not warnings_of(caplog, flag_checks.check, dict(
      masked_lm_prob=0.15, max_seq_length=length,
      max_predictions_per_seq=predictions))


def test_repeated_flags(caplog):
  assert warnings_of(caplog, flag_checks.warn_of_repeats, dict(
      seed=2, num_gpus=1), dict(seed=7, num_gpus=1)) == [
          "--seed was given 2 times: the last one counts, --seed=7."]


def test_leftovers():
  flag_checks.check_leftovers([])
  with pytest.raises(UserError, match="'b.txt' and 2 more words"):
    flag_checks.check_leftovers(["b.txt", "c.txt", "d.txt"])


def test_output_folders(tmp_path, caplog, monkeypatch):
  (tmp_path / "data").mkdir()
  (tmp_path / "link").symlink_to(tmp_path / "nothing")
  folders.check_output_dir(str(tmp_path / "new" / "out"), {})
  folders.check_output_dir("gs://bucket/out", {})
  for path, message in (("", "is empty"), (str(tmp_path / "link"),
                                           "a link to nothing")):
    with pytest.raises(UserError, match=message):
      folders.check_output_dir(path, {})
  data = str(tmp_path / "data")
  assert "--output_dir is --data_dir too" in warnings_of(
      caplog, folders.check_output_dir, data + "/", {"data_dir": data})[0]
  # Tests may run as root, who may write everywhere.
  monkeypatch.setattr(os, "access", lambda path, mode: False)
  with pytest.raises(UserError, match="no right to write"):
    folders.check_output_dir(data, {})


def test_memory():
  message = ("2 root error(s) found.\n  (0) Resource exhausted: OOM when "
             "allocating tensor with shape[64,512]\n more")
  text = failures.explain_memory(message, dict(
      train_batch_size=64, max_seq_length=512, do_train=True,
      gradient_accumulation_steps=1))
  assert "--train_batch_size=64, --max_seq_length=512" in text
  assert "shape[64,512]" in text and "\n" not in text
  assert "--gradient_accumulation_steps=N" in text
  assert failures.explain_memory("No space left on device", {}) is None
