"""run_squad_multigpu.py as users run it: real failures, and N = 1, 2, 3."""
import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from conftest import ROOT
import programs

SCRIPT = "run_squad_multigpu.py"
MODEL = dict(vocab_file="../_shared/vocab.txt",
             bert_config_file="../_shared/bert_config.json",
             max_seq_length=64, max_query_length=20, doc_stride=16)


def case(shared, number):
  folder, = (shared / "cases").glob("%s-*" % number)
  return folder


def read(folder, name):
  return json.loads((folder / (name + ".json")).read_text())


def predict(folder, out, **flags):
  outcome = programs.run(
      SCRIPT, folder, output_dir=out, do_predict=True,
      **dict(dict(MODEL, predict_file="predict.json"), **flags))
  assert outcome.status == 0, outcome.output
  return outcome


@pytest.mark.parametrize("flags, some_text", [
    (dict(n_best_size=1), True),
    pytest.param(dict(max_answer_length=0), False,
                 marks=pytest.mark.once("tf1"))])
def test_case_01_no_candidate_but_null(shared, tmp_path, flags, some_text):
  predict(case(shared, "01"), tmp_path, max_query_length=44,
          version_2_with_negative=True, seed=4, **flags)
  predictions = read(tmp_path, "predictions")
  assert len(predictions) == 30
  if not some_text:
    assert set(predictions.values()) == {""}
  assert all(np.isfinite(odds)
             for odds in read(tmp_path, "null_odds").values())


def test_case_02_empty_context(shared, tmp_path):
  folder = case(shared, "02")
  predict(folder, tmp_path / "v2", version_2_with_negative=True, num_gpus=2)
  predictions = read(tmp_path / "v2", "predictions")
  assert [predictions[name] for name in ("e1", "e2", "e3")] == [""] * 3
  assert predictions["ok"]
  outcome = predict(folder, tmp_path / "v1")
  predictions = read(tmp_path / "v1", "predictions")
  assert [predictions[name] for name in ("e1", "e2", "e3")] == ["empty"] * 3
  assert "e1, e2, e3" in outcome.output


def test_case_07_without_answers(shared, tmp_path):
  outcome = predict(case(shared, "07"), tmp_path, num_gpus=2)
  predictions = read(tmp_path, "predictions")
  assert list(predictions) == ["a", "b", "c", "d", "e"]
  assert predictions["c"] == predictions["b"]
  assert "RANDOM WEIGHTS" in outcome.output
  assert not (tmp_path / "eval_results.json").exists()


@pytest.mark.parametrize("stride", [0, -1])
def test_case_09_stride_below_one(shared, tmp_path, stride):
  outcome = programs.run(
      SCRIPT, case(shared, "09"), timeout=300, output_dir=tmp_path / "out",
      do_train=True, train_file="train.json", train_batch_size=1,
      **dict(MODEL, max_seq_length=32, max_query_length=8, doc_stride=stride))
  assert outcome.status == 1
  assert "ERROR: --doc_stride=%d" % stride in outcome.output
  assert "Traceback" not in outcome.output
  assert not (tmp_path / "out").exists()


def test_training_counts_and_resume(shared, tmp_path):
  """Cases 09, 65: steps from examples and the global batch, and going on."""
  flags = dict(
      MODEL, max_seq_length=32, max_query_length=8, doc_stride=4, do_train=True,
      train_file="train.json", train_batch_size=1, num_gpus=2,
      init_checkpoint="../_shared/bert_model.ckpt", output_dir=tmp_path)
  first = programs.run(SCRIPT, case(shared, "09"), num_train_epochs=4, **flags)
  assert first.status == 0, first.output
  for line in ("devices 2 CPU replicas", "batch per replica 1",
               "global batch = 2 (1 x 2)", "examples 1", "features 9",
               "steps 2", "warm-up steps 0", "loaded 39 of 41 variables; not in"
               " it: cls/squad/output_weights, cls/squad/output_bias",
               "examples/s"):
    assert line in first.output
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-2")
  again = programs.run(SCRIPT, case(shared, "09"), num_train_epochs=4, **flags)
  assert again.status == 0
  assert "already holds step 2 of 2" in again.output
  used_again = "train.tf_record: made before from the same data, used again"
  assert used_again in again.output and used_again not in first.output


@pytest.fixture(scope="module")
def one_replica(shared, tmp_path_factory):
  """Predictions of one replica over case 01, to compare with."""
  out = tmp_path_factory.mktemp("one")
  predict(case(shared, "01"), out, **replica_flags(1))
  return out


def replica_flags(num_replicas):
  return dict(max_query_length=44, num_gpus=num_replicas, seed=7,
              init_checkpoint="../_shared/bert_model.ckpt",
              predict_batch_size=4, version_2_with_negative=True)


@pytest.mark.parametrize("num_replicas", [
    2, 3, pytest.param(4, marks=pytest.mark.once("tf2"))])
def test_case_67_all_replicas_predict_what_one_does(shared, one_replica,
                                                    tmp_path, num_replicas):
  predict(case(shared, "01"), tmp_path, **replica_flags(num_replicas))
  name = "predictions.json"
  assert (tmp_path / name).read_bytes() == (one_replica / name).read_bytes()
  one, many = (read(path, "nbest_predictions")
               for path in (one_replica, tmp_path))
  assert list(one) == list(many)
  for qas_id in one:
    for a, b in zip(one[qas_id], many[qas_id]):
      assert a["text"] == b["text"]
      for key in ("start_logit", "end_logit"):
        assert a[key] == pytest.approx(b[key], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [
    (2,), pytest.param((2, 4), marks=pytest.mark.long)])
def test_training_and_answers_are_those_of_one_device(tmp_path, numbers):
  """The whole command with 1, 2 and 4 replicas on the same global batch."""
  sample = ROOT / "samples" / "squad"
  config = json.loads((sample / "bert_config.json").read_text())
  config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                num_hidden_layers=1)
  (tmp_path / "bert_config.json").write_text(json.dumps(config))
  for num_replicas in (1,) + numbers:
    # Evaluations in between change nothing.
    outcome = programs.run(
        SCRIPT, tmp_path, num_gpus=num_replicas, seed=3,
        train_batch_size=32 // num_replicas, predict_batch_size=16,
        eval_every_steps=1000 if num_replicas == 2 else 0,
        do_train=True, do_predict=True, num_train_epochs=0.12,
        learning_rate=1e-3, max_seq_length=80, doc_stride=32,
        max_query_length=24, train_file=sample / "train.json",
        predict_file=sample / "dev.json", vocab_file=sample / "vocab.txt",
        bert_config_file="bert_config.json", output_dir=str(num_replicas))
    assert outcome.status == 0, outcome.output
  one = tmp_path / "1"
  evaluation, = read(tmp_path / "2", "evaluations")["evaluations"]
  assert evaluation["f1"] == read(one, "eval_results")["f1"]
  for many in (tmp_path / str(number) for number in numbers):
    for name in ("predictions.json", "eval_results.json"):
      assert (many / name).read_bytes() == (one / name).read_bytes()
    for a, b in zip(read(one, "nbest_predictions").values(),
                    read(many, "nbest_predictions").values()):
      np.testing.assert_allclose(
          [entry["start_logit"] for entry in a[:3]],
          [entry["start_logit"] for entry in b[:3]], atol=1e-5)


# The other kinds of mistakes are in tests/mistakes.py.
@pytest.mark.parametrize("flags, message", [
    (dict(num_gpus=2, device_type="auto"),
     "--num_gpus=2, but this machine shows 0 GPUs: pass --device_type=cpu"),
    (dict(do_train=True, train_file="predict.json", eval_every_steps=5),
     "needs a --predict_file that holds the answers"),
    (dict(init_checkpoint="../_shared/bert_model.ckpt.index"),
     "leave out the ending and pass ../_shared/bert_model.ckpt."),
])
def test_wrong_flags_are_answered_before_any_work(shared, tmp_path, flags,
                                                  message):
  outcome = programs.run(
      SCRIPT, case(shared, "07"), timeout=300, output_dir=tmp_path / "out",
      **dict(dict(MODEL, do_predict=True, predict_file="predict.json"),
             **flags))
  assert outcome.status == 1, outcome.output
  assert message in outcome.output
  assert "Traceback" not in outcome.output
  assert not (tmp_path / "out").exists()


def test_a_bad_predict_file_does_not_wait_for_the_training(shared, tmp_path):
  (tmp_path / "predict.json").write_text("{\"data\": [")
  outcome = programs.run(
      SCRIPT, case(shared, "09"), timeout=300, output_dir=tmp_path / "out",
      do_train=True, train_file="train.json", train_batch_size=1,
      do_predict=True, predict_file=tmp_path / "predict.json",
      **dict(MODEL, max_seq_length=32, max_query_length=8))
  assert outcome.status == 1
  assert "predict.json is not JSON" in outcome.output
  assert not (tmp_path / "out").exists()


def test_tpu_flags_are_named_once(shared, tmp_path):
  outcome = predict(case(shared, "07"), tmp_path, tpu_name="mine",
                    num_tpu_cores=8)
  assert outcome.output.count(
      "TPU flags have no effect here: --tpu_name, --num_tpu_cores") == 1
