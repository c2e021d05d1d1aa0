"""One row and damaged rows, with two replicas, as users run the programs."""
import json

import fuzz_targets
import numpy as np
import pytest

from multigpu import records
import programs


@pytest.fixture
def model(tmp_path):
  """Flags of a tiny model."""
  (tmp_path / "vocab.txt").write_text("\n".join(fuzz_targets.ENTRIES) + "\n")
  config = dict(vocab_size=len(fuzz_targets.ENTRIES), hidden_size=8,
                num_hidden_layers=1, num_attention_heads=2, type_vocab_size=2,
                intermediate_size=8, max_position_embeddings=16)
  (tmp_path / "bert_config.json").write_text(json.dumps(config))
  return dict(bert_config_file="bert_config.json", max_seq_length=16,
              num_gpus=2, output_dir="out")


@pytest.mark.once("tf1")
@pytest.mark.slow
def test_one_example_to_classify(model, tmp_path):
  """Trained, evaluated and predicted, each exactly once."""
  for name in ("train", "dev", "test"):
    (tmp_path / (name + ".tsv")).write_text(
        "text_a\tlabel\nthe boat is blue\tb\n" + (
            "a tower\ta\n" if name == "train" else ""))
  outcome = programs.run(
      "run_classifier_multigpu.py", tmp_path, task_name="tsv", data_dir=".",
      vocab_file="vocab.txt", do_train=True, do_eval=True, do_predict=True,
      train_batch_size=1, num_train_epochs=3, eval_batch_size=8,
      predict_batch_size=8, strict=True, **model)
  assert outcome.status == 0, outcome.output
  assert "steps 3\n" in outcome.output
  (line,) = (tmp_path / "out" / "test_results.tsv").read_text().splitlines()
  assert sum(map(float, line.split("\t"))) == pytest.approx(1, abs=1e-5)
  results = (tmp_path / "out" / "eval_results.txt").read_text()
  assert "eval_accuracy = 0.0" in results or "eval_accuracy = 1.0" in results


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_one_record_to_pretrain_on(model, tmp_path):
  """It is enough for any batch; then files that are not as they should be."""
  rng = np.random.RandomState(0)
  table = fuzz_targets.TABLE
  with records.RecordWriter(str(tmp_path / "one"), table) as writer:
    writer.write({name: rng.randint(0, 2, shape)
                  for name, (shape, _) in table.items()})
  flags = dict(
      model, do_train=True, do_eval=True, num_train_steps=2, num_warmup_steps=0,
      train_batch_size=2, max_predictions_per_seq=fuzz_targets.PREDICTIONS)

  def run(**changes):
    return programs.run("run_pretraining_multigpu.py", tmp_path,
                        **dict(flags, **changes))

  outcome = run(input_file="one")
  assert outcome.status == 0, outcome.output
  assert "records 1 of 1" in outcome.output
  content = (tmp_path / "one").read_bytes()
  # Damage that no first record shows.
  (tmp_path / "more").write_bytes(content + content[:-9] + b"wrong" * 99)
  for changes, message in (
      (dict(input_file="one,more", output_dir="out2"),
       "ERROR: more, record 2: damaged"),
      (dict(input_file="one", max_predictions_per_seq=9),
       "but --max_predictions_per_seq=9: pass --max_predictions_per_seq=3")):
    outcome = run(**changes)
    assert outcome.status == 1, outcome.output
    assert message in outcome.output
    assert "Traceback" not in outcome.output
