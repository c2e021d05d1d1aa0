"""run_classifier_multigpu.py as users run it: real failures, N = 1, 2, 3."""
import json

import numpy as np
import pytest

import modeling
from multigpu import devices as devices_lib
from multigpu import records
from multigpu import runs
import programs
import strip_checkpoint
from tasks import classifier_data
from tasks.classifier_head import make_classifier_head
from tasks.classifier_processors import MrpcProcessor
import tokenization

SCRIPT = "run_classifier_multigpu.py"
MODEL = dict(task_name="MRPC", max_seq_length=32, data_dir=".",
             vocab_file="../_shared/vocab.txt",
             bert_config_file="../_shared/bert_config.json")


def case(shared, number):
  folder, = (shared / "cases").glob("%s-*" % number)
  return folder


def run(folder, out, **flags):
  return programs.run(SCRIPT, folder, output_dir=out, **dict(MODEL, **flags))


def run_well(folder, out, **flags):
  outcome = run(folder, out, **flags)
  assert outcome.status == 0, outcome.output
  return outcome


def read_results(folder):
  lines = (folder / "eval_results.txt").read_text().splitlines()
  return dict(line.split(" = ") for line in lines)


def read_probabilities(folder):
  return [[float(cell) for cell in line.split("\t")]
          for line in (folder / "test_results.tsv").read_text().splitlines()]


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_google_end_to_end(shared, tmp_path, num_replicas):
  golden = shared / "golden" / "classifier_features" / "e2e"
  model = shared / "golden" / "model"
  run_well(golden, tmp_path, data_dir="data", num_gpus=num_replicas,
           init_checkpoint="model.ckpt", vocab_file=model / "vocab.txt",
           bert_config_file=model / "bert_config.json", do_eval=True,
           do_predict=True)
  mine, theirs = read_results(tmp_path), read_results(golden)
  assert list(mine) == sorted(set(theirs) | {"eval_f1"})
  for key, value in theirs.items():
    assert float(mine[key]) == pytest.approx(float(value), abs=1e-5)
  np.testing.assert_allclose(read_probabilities(tmp_path),
                             read_probabilities(golden), atol=1e-5)


@pytest.mark.slow
def test_case_19_trains_evaluates_and_predicts_empty_texts(shared, tmp_path):
  outcome = run_well(case(shared, "19"), tmp_path, do_train=True, do_eval=True,
                     do_predict=True, train_batch_size=2, num_gpus=2)
  assert "global batch = 4 (2 x 2)" in outcome.output
  probabilities = read_probabilities(tmp_path)
  assert len(probabilities) == 7
  assert np.isfinite(probabilities).all()
  results = read_results(tmp_path)
  assert int(results["global_step"]) > 0
  assert json.loads((tmp_path / "eval_results.json").read_text())["eval_loss"]


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_the_best_weights_are_evaluated_and_predict(shared, tmp_path):
  """With LAMB, whose large rate overshoots; then from stripped weights."""
  folder, out = case(shared, "19"), tmp_path / "out"
  outcome = run_well(
      folder, out, do_train=True, do_eval=True, do_predict=True,
      train_batch_size=2, num_gpus=2, num_train_epochs=4, optimizer="lamb",
      learning_rate=0.3, eval_every_steps=2, keep_best="eval_loss",
      keep_checkpoint_max=1)
  best = json.loads((out / "best" / "best.json").read_text())
  values = {entry["step"]: entry["eval_loss"] for entry in json.loads(
      (out / "evaluations.json").read_text())["evaluations"]}
  assert best["value"] == values[best["step"]] == min(values.values())
  assert outcome.output.count("evaluation at step ") == len(values) > 2
  results = read_results(out)
  assert int(results["global_step"]) == best["step"]
  assert float(results["eval_loss"]) == pytest.approx(best["value"], rel=1e-6)
  assert len(list(out.glob("model.ckpt-*.index"))) == 1

  strip_checkpoint.main([str(out), str(tmp_path / "small" / "model.ckpt")])
  run_well(folder, out, do_predict=True)
  run_well(folder, tmp_path / "small", do_predict=True)
  assert read_probabilities(tmp_path / "small") == read_probabilities(out)


@pytest.mark.parametrize("number, lines, text", [
    ("11", 6, "blank"), ("14", 2, "header"), ("17", 6, "Probabilities are in")])
def test_rows_are_counted(shared, tmp_path, number, lines, text):
  outcome = run_well(case(shared, number), tmp_path, do_predict=True,
                     num_gpus=2)
  assert len(read_probabilities(tmp_path)) == lines
  assert text in outcome.output


def test_case_25_the_data_of_this_run_is_used(shared, tmp_path):
  folder = case(shared, "23")
  run_well(folder, tmp_path / "out", do_eval=True)
  first = read_results(tmp_path / "out")
  lines = (folder / "dev.tsv").read_text().splitlines(True)
  (tmp_path / "dev.tsv").write_text("".join(lines[:2]))
  outcome = run_well(folder, tmp_path / "out", do_eval=True, data_dir=tmp_path)
  assert "examples 1\n" in outcome.output
  second = read_results(tmp_path / "out")
  assert second["eval_accuracy"] in ("0.0", "1.0")
  assert first != second


@pytest.mark.parametrize("number, flags, message", [
    ("16", dict(do_train=True), "train.tsv, line "),
    ("21", dict(do_eval=True), "dev.tsv"),
    ("21", dict(do_predict=True), "test.tsv"),
    ("26", dict(do_train=True, train_batch_size=64, num_train_epochs=3,
                data_dir="../23-eval-predict-11-rows"),
     "11 examples x --num_train_epochs=3.0 / global batch 64"),
    ("19", dict(do_train=True, eval_every_steps=5, keep_best="f1"),
     "--keep_best=f1, wanted one of eval_accuracy, eval_f1, eval_loss, loss."),
])
def test_wrong_input_is_answered_before_any_work(shared, tmp_path, number,
                                                 flags, message):
  outcome = run(case(shared, number), tmp_path / "out", timeout=300, **flags)
  assert outcome.status == 1, outcome.output
  assert message in outcome.output
  assert "Traceback" not in outcome.output
  assert not (tmp_path / "out").exists()


def test_own_data_with_several_labels(shared, tmp_path):
  """--task_name=tsv --multi_label on a small csv file, two replicas."""
  rows = ["text,tags", "the boat is blue,\"boat,blue\"", "the tower,tower",
          "nothing here,"]
  for name in ("train", "dev", "test"):
    (tmp_path / (name + ".csv")).write_text("\n".join(rows) + "\n")
  folder = case(shared, "23")
  run_well(folder, tmp_path / "out", task_name="tsv", data_dir=tmp_path,
           text_a_column="text", label_column="tags", multi_label=True,
           do_eval=True, do_predict=True, num_gpus=2)
  assert (tmp_path / "out" / "labels.txt").read_text().split() == [
      "blue", "boat", "tower"]
  assert np.array(read_probabilities(tmp_path / "out")).shape == (3, 3)
  assert "eval_micro_f1" in read_results(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("num_evaluations", [
    3, pytest.param(12, marks=pytest.mark.long)])
def test_case_63_evaluations_are_equal(shared, tmp_path, num_evaluations):
  """11 rows in batches of 4 on 2 replicas, again and again."""
  folder = case(shared, "23")
  config = modeling.BertConfig.from_json_file(
      str(shared / "cases" / "_shared" / "bert_config.json"))
  tokenizer = tokenization.FullTokenizer(
      str(shared / "cases" / "_shared" / "vocab.txt"))
  examples = MrpcProcessor().get_dev_examples(str(folder))
  table = classifier_data.record_table(32, ["0", "1"])
  path = str(tmp_path / "eval.tf_record")
  with records.RecordWriter(path, table) as writer:
    for feature in classifier_data.iterate_features(
        examples, ["0", "1"], 32, tokenizer, show_progress=False):
      writer.write(classifier_data.feature_to_record(feature))

  def evaluate(num_replicas):
    this_run = runs.Run(
        devices=devices_lib.set_up(
            devices_lib.DeviceSettings(num_replicas, "cpu")),
        bert_config=config, output_dir=str(tmp_path), seed=1,
        init_checkpoint=str(shared / "cases" / "_shared" / "bert_model.ckpt"))
    batches = list(this_run.predict(make_classifier_head(2),
                                    runs.Rows(path, table), 11, 4))
    return np.concatenate([batch["probabilities"] for batch in batches])

  one = evaluate(1)
  assert one.shape == (11, 2)
  for _ in range(num_evaluations):
    np.testing.assert_allclose(evaluate(2), one, atol=1e-6)
