"""run_pretraining_multigpu.py as users run it, on 1 and 2 replicas."""
import json

import pytest
import tensorflow.compat.v1 as tf

import programs

SCRIPT = "run_pretraining_multigpu.py"
NAMES = ["global_step", "loss", "masked_lm_accuracy", "masked_lm_loss",
         "next_sentence_accuracy", "next_sentence_loss"]


@pytest.fixture
def flags(shared, tmp_path):
  """A small model with the vocabulary of the reference records."""
  golden = shared / "golden"
  config = json.loads(
      (golden / "model" / "bert_config_nodropout.json").read_text())
  # One layer: the tests take the time to build graphs.
  config.update(vocab_size=30522, num_hidden_layers=1)
  (tmp_path / "bert_config.json").write_text(json.dumps(config))
  return dict(
      bert_config_file="bert_config.json",
      input_file=golden / "pretraining" / "records_seed12345.tf_record",
      max_seq_length=64, max_predictions_per_seq=10)


def read_results(folder):
  lines = (folder / "eval_results.txt").read_text().splitlines()
  pairs = [line.split(" = ") for line in lines]
  assert [name for name, _ in pairs] == NAMES
  return [float(value) for _, value in pairs]


def read_curves(folder):
  """{name: {step: value}} of the event files in a folder."""
  curves = {}
  for path in sorted(folder.glob("events.out.tfevents.*")):
    for event in tf.train.summary_iterator(str(path)):
      for value in event.summary.value:
        curves.setdefault(value.tag, {})[event.step] = value.simple_value
  return curves


def test_trains_and_evaluates_equally_on_one_and_two(flags, tmp_path):
  """Case 47: every record counts once, whatever the number of replicas.

  The two are evaluated during the training, too, which changes nothing.
  """
  for num_replicas in (1, 2):
    outcome = programs.run(
        SCRIPT, tmp_path, num_gpus=num_replicas,
        train_batch_size=8 // num_replicas, do_train=True, do_eval=True,
        num_train_steps=4, num_warmup_steps=1, learning_rate=1e-3, seed=2,
        eval_batch_size=10 // num_replicas,
        # Enough for all 71 records.
        max_eval_steps=100, output_dir=str(num_replicas),
        eval_every_steps=0 if num_replicas == 1 else 3, **flags)
    assert outcome.status == 0, outcome.output
    assert "records 71 of 71" in outcome.output
    assert "global batch = 8 (%d x %d)" % (
        8 // num_replicas, num_replicas) in outcome.output
  one, two = (read_results(tmp_path / name) for name in ("1", "2"))
  assert two == pytest.approx(one, abs=1e-5)
  assert one[0] == 4
  assert tf.train.latest_checkpoint(
      str(tmp_path / "2")).endswith("model.ckpt-4")

  # Two micro-batches of 4, with loss scaling: the same again.
  accumulated = programs.run(
      SCRIPT, tmp_path, train_batch_size=4, gradient_accumulation_steps=2,
      precision="fp16", do_train=True, do_eval=True, num_train_steps=4,
      num_warmup_steps=1, learning_rate=1e-3, seed=2, eval_batch_size=10,
      max_eval_steps=100, output_dir="accumulated", **flags)
  assert accumulated.status == 0, accumulated.output
  assert "global batch = 8 (4 x 1 x 2 accumulation steps)" in (
      accumulated.output)
  assert read_results(tmp_path / "accumulated") == pytest.approx(one, abs=1e-5)
  refused = programs.run(
      SCRIPT, tmp_path, do_train=True, num_train_steps=8, precision="fp16",
      output_dir="1", **flags)
  assert refused.status == 1
  assert "was trained without it and has no loss scale" in refused.output

  # The curves of TensorBoard are those of the global batch.
  one, two = (read_curves(tmp_path / name) for name in ("1", "2"))
  assert set(one) == set(NAMES[1:]) | {"optimizer/learning_rate"}
  assert set(two) == set(one)
  for name, points in one.items():
    assert two[name] == pytest.approx(points, abs=1e-5), name
  assert one["masked_lm_loss"][1] + one["next_sentence_loss"][1] == (
      pytest.approx(one["loss"][1], abs=1e-5))
  curves = read_curves(tmp_path / "2" / "eval")
  assert set(curves) == set(NAMES[1:])
  evaluations = json.loads(
      (tmp_path / "2" / "evaluations.json").read_text())["evaluations"]
  assert [evaluation["step"] for evaluation in evaluations] == [3, 4]
  for name, value in zip(NAMES[1:], read_results(tmp_path / "2")[1:]):
    assert curves[name] == {3: pytest.approx(evaluations[0][name]),
                            4: pytest.approx(value)}
    assert evaluations[1][name] == pytest.approx(value)


def test_evaluation_stops_at_max_eval_steps(flags, tmp_path):
  outcome = programs.run(SCRIPT, tmp_path, do_eval=True, num_gpus=2,
                         eval_batch_size=4, max_eval_steps=3, output_dir="out",
                         **flags)
  assert outcome.status == 0, outcome.output
  assert "records 12 of 71" in outcome.output


@pytest.mark.parametrize("change, message", [
    # Case 56. The other kinds of mistakes are in tests/mistakes.py.
    (dict(max_seq_length=65), "--max_seq_length=65, but the model has only 64"),
])
def test_wrong_flags(flags, tmp_path, change, message):
  outcome = programs.run(
      SCRIPT, tmp_path, timeout=300, output_dir="out",
      **dict(dict(flags, do_eval=True), **change))
  assert outcome.status == 1, outcome.output
  assert message in outcome.output
  assert "Traceback" not in outcome.output
  assert not (tmp_path / "out").exists()
