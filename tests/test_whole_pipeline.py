"""From text to a classifier: records, pre-training, fine-tuning, all as users
run them, with two replicas. Takes some ten minutes on two cores, so it runs
only when it is asked for:

    bash scripts/test.sh --long tests/test_whole_pipeline.py -s

A tiny BERT is pre-trained on the sentences of banking77, without their labels,
and fine-tuned for one epoch with them. It must do much better than the same
model that starts from random weights: that shows that the records, both losses,
the checkpoint and its loading are of use, not only free of crashes.
"""
import csv
import json
import random

import pytest

import programs
import tokenization

CONFIG = {
    "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0, "hidden_size": 128, "initializer_range": 0.08,
    "intermediate_size": 512, "max_position_embeddings": 64,
    "num_attention_heads": 2, "num_hidden_layers": 2, "type_vocab_size": 2}
LENGTHS = dict(max_seq_length=64, max_predictions_per_seq=10)
NUM_TRAIN_STEPS = 2000


def write_text(texts, path):
  """Sentences in random order, so that no label can be seen from it."""
  texts = list(texts)
  random.Random(1).shuffle(texts)
  path.write_text("".join(
      text + ("\n\n" if i % 20 == 19 else "\n")
      for i, text in enumerate(texts)), encoding="utf-8")


def write_model(texts, vocab_file, folder):
  """A configuration, and the word pieces that the texts need."""
  tokenizer = tokenization.FullTokenizer(str(vocab_file))
  used = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}.union(
      *(tokenizer.tokenize(text) for text in texts))
  vocab = [token for token in tokenizer.vocab if token in used]
  (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
  (folder / "bert_config.json").write_text(
      json.dumps(dict(CONFIG, vocab_size=len(vocab))))


def run(script, folder, **flags):
  outcome = programs.run(script, folder, timeout=1800, **flags)
  assert outcome.status == 0, outcome.output[-5000:]


def fine_tune(folder, name, **flags):
  """Returns the accuracy on the test set."""
  run("run_classifier_multigpu.py", folder, num_gpus=2, task_name="tsv",
      data_dir="data", text_a_column="text", label_column="category",
      vocab_file="vocab.txt", bert_config_file="bert_config.json",
      do_train=True, do_eval=True, max_seq_length=32, train_batch_size=8,
      eval_batch_size=128, learning_rate=5e-4, num_train_epochs=1,
      output_dir=name, **flags)
  results = json.loads((folder / name / "eval_results.json").read_text())
  return results["eval_accuracy"]


@pytest.mark.slow
@pytest.mark.long
def test_pretraining_helps(shared, tmp_path):
  data = tmp_path / "data"
  data.mkdir()
  for source, target in (("train.csv", "train.csv"), ("test.csv", "dev.csv")):
    (data / target).write_bytes(
        (shared / "data" / "banking77" / source).read_bytes())
  with open(str(data / "train.csv"), encoding="utf-8", newline="") as reader:
    texts = [" ".join(row["text"].split()) for row in csv.DictReader(reader)]
  write_text(texts, tmp_path / "text.txt")
  write_model(texts, shared / "data" / "vocab" / "uncased" / "vocab.txt",
              tmp_path)

  programs_run = programs.run(
      "create_pretraining_data.py", tmp_path, device_type=None,
      input_file="text.txt", output_file="records.tfrecord",
      vocab_file="vocab.txt", dupe_factor=10, **LENGTHS)
  assert programs_run.status == 0, programs_run.output
  run("run_pretraining_multigpu.py", tmp_path, num_gpus=2,
      input_file="records.tfrecord", bert_config_file="bert_config.json",
      do_train=True, do_eval=True, train_batch_size=16, eval_batch_size=64,
      max_eval_steps=10, num_train_steps=NUM_TRAIN_STEPS,
      num_warmup_steps=NUM_TRAIN_STEPS // 10, learning_rate=1e-3,
      output_dir="pretrained", **LENGTHS)
  masked_lm = (tmp_path / "pretrained" / "eval_results.txt").read_text()
  pretrained = fine_tune(
      tmp_path, "fine_tuned",
      init_checkpoint="pretrained/model.ckpt-%d" % NUM_TRAIN_STEPS)
  untrained = fine_tune(tmp_path, "from_random")
  # pytest -s shows the numbers of the README.
  print("\n%s\naccuracy on banking77: pre-trained %.3f, from random weights "
        "%.3f" % (masked_lm, pretrained, untrained))
  assert pretrained > untrained + 0.1
