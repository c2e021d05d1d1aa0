"""A small model with data, and next to each good file its wrong versions."""
import gzip
import json
import pathlib
import struct

import numpy as np
import tensorflow.compat.v1 as tf

from multigpu import variable_shapes

MARKERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = ["the", "boat", "tower", "river", "lamp"]
VOCAB = MARKERS + LETTERS + ["##" + letter for letter in LETTERS] + WORDS
CONFIG = dict(
    attention_probs_dropout_prob=0.1, hidden_act="gelu",
    hidden_dropout_prob=0.1, hidden_size=8, initializer_range=0.02,
    intermediate_size=16, max_position_embeddings=48, num_attention_heads=2,
    num_hidden_layers=2, type_vocab_size=2, vocab_size=len(VOCAB))
QUESTIONS = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{
    "context": "the boat is near the tower",
    "qas": [{"id": "q1", "question": "where is the boat",
             "answers": [{"text": "the tower", "answer_start": 17}]}]}]}]}
PAIRS = ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
         "1\t1\t2\tthe boat\tthe river\n0\t3\t4\tthe lamp\tthe tower\n")


def build(folder):
  """Writes everything into a folder."""
  folder = pathlib.Path(folder)
  for name in ("model", "data", "wrong", "empty_folder", "hf", "two", "torn",
               "headless", "other"):
    (folder / name).mkdir()
  _write_files(folder)
  _write_wrong_vocabularies(folder / "wrong")
  _write_wrong_configurations(folder / "wrong")
  _write_checkpoints(folder)


def _write_files(folder):
  (folder / "model" / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
  (folder / "model" / "bert_config.json").write_text(json.dumps(CONFIG))
  (folder / "train.json").write_text(json.dumps(QUESTIONS))
  for name in ("train", "dev", "test"):
    (folder / "data" / (name + ".tsv")).write_text(PAIRS)
  (folder / "corpus.txt").write_text("the boat\nthe river\n\nthe lamp\n\n")
  (folder / "rows.tfrecord").write_bytes(
      struct.pack("<Q", 4) + b"\0" * 4 + b"data" + b"\0" * 4)
  wrong = folder / "wrong"
  (wrong / "empty").write_bytes(b"")
  (wrong / "packed.gz").write_bytes(gzip.compress(b"text"))
  (wrong / "binary").write_bytes(bytes(range(256)))
  (wrong / "page.html").write_text("<!DOCTYPE html><html></html>")
  (wrong / "utf16.txt").write_bytes("the boat".encode("utf-16"))
  (wrong / "pointer.txt").write_text(
      "version https://git-lfs.github.com/spec/v1\n")
  (folder / "hf" / "config.json").write_text("{}")
  (folder / "hf" / "model.safetensors").write_bytes(
      struct.pack("<Q", 2) + b"{}")
  (folder / "hf" / "pytorch_model.bin").write_bytes(b"PK\x03\x04data.pkl\0")
  (folder / "predictions").mkdir()
  (folder / "predictions" / "predictions.json").write_text(
      json.dumps(QUESTIONS))


def _write_wrong_vocabularies(folder):
  def write(name, entries, end="\n", encoding="utf-8"):
    (folder / name).write_bytes(
        "".join(entry + end for entry in entries).encode(encoding))

  write("longer.txt", VOCAB + ["one", "more"])
  write("no_cls.txt", VOCAB[:2] + ["cls"] + VOCAB[3:])
  write("no_mask.txt", VOCAB[:4] + VOCAB[5:])
  write("cased.txt", MARKERS + LETTERS[:20] + [
      letter.upper() for letter in LETTERS[:20]])
  write("latin1.txt", VOCAB + ["\xe9t\xe9"], encoding="latin-1")
  write("blank_end.txt", VOCAB + ["", ""])


def _write_wrong_configurations(folder):
  def write(name, **changes):
    settings = dict(CONFIG, **changes)
    (folder / name).write_text(json.dumps(
        {key: value for key, value in settings.items() if value is not None}))

  write("text_number.json", hidden_size="8")
  write("negative.json", num_hidden_layers=0)
  write("no_vocab_size.json", vocab_size=None)
  write("heads.json", num_attention_heads=3)
  write("misspelt.json", hidden_size=None, hiden_size=8)
  write("act.json", hidden_act="gelu_new")
  write("dropout.json", hidden_dropout_prob=1.5)
  write("albert.json", model_type="albert")
  write("wider.json", hidden_size=12, intermediate_size=24)
  write("deeper.json", num_hidden_layers=3)
  (folder / "list.json").write_text("[1, 2]")
  (folder / "torn.json").write_text(json.dumps(CONFIG)[:60])
  (folder / "twice.json").write_text(
      json.dumps(CONFIG)[:-1] + ', "hidden_size": 16}')


def _write_checkpoints(folder):
  shapes = variable_shapes.variable_shapes(CONFIG)
  save(folder / "model" / "bert_model.ckpt", shapes)
  for name in ("first.ckpt", "second.ckpt"):
    save(folder / "two" / name, {"bert/embeddings/x": (2,)})
  save(folder / "other" / "other.ckpt", {"w": (2, 2), "b": (2,)})
  save(folder / "other" / "classifier.ckpt", dict(
      shapes, output_weights=(5, CONFIG["hidden_size"]), output_bias=(5,)))
  good = folder / "model" / "bert_model.ckpt"
  for suffix in (".index", ".data-00000-of-00001"):
    content = (folder / "model" / (good.name + suffix)).read_bytes()
    (folder / "torn" / ("data.ckpt" + suffix)).write_bytes(
        content if suffix == ".index" else content[:500])
    (folder / "torn" / ("index.ckpt" + suffix)).write_bytes(
        content[:100] if suffix == ".index" else content)
    name = "no_data.ckpt" if suffix == ".index" else "no_index.ckpt"
    (folder / "headless" / (name + suffix)).write_bytes(content)


def save(path, shapes):
  """Writes a checkpoint with random variables and no state file."""
  with tf.Graph().as_default(), tf.Session() as session:
    generator = np.random.RandomState(0)
    variables = [
        tf.get_variable(name, initializer=tf.constant(
            generator.normal(size=shape), tf.float32))
        for name, shape in shapes.items()]
    session.run(tf.global_variables_initializer())
    tf.train.Saver(variables).save(
        session, str(path), write_meta_graph=False, write_state=False)
