"""Configuration, vocabulary and checkpoint: what passes, what is warned of."""
import json
import logging
import pathlib

import pytest
import tensorflow.compat.v1 as tf

import mistakes_world as world
import modeling
from multigpu import checkpoint_files
from multigpu import config_checks
from multigpu import file_kinds
from multigpu import initial_checkpoint
from multigpu import model_files
from multigpu import variable_shapes
from multigpu import vocabulary
from multigpu.errors import UserError

LOWER, CASED = (vocabulary.Case(value, False) for value in (True, False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("world")
  world.build(path)
  return path


def warnings_of(caplog, function, *arguments):
  caplog.clear()
  with caplog.at_level(logging.WARNING):
    function(*arguments)
  return [record.getMessage() for record in caplog.records]


def check_entries(entries, case=LOWER, **kwargs):
  content = "".join(entry + "\n" for entry in entries)
  return vocabulary.check(content.encode("utf-8"), "v", case, **kwargs)


# Vocabulary.


@pytest.mark.parametrize("name, cased", [
    ("uncased", False), ("cased", True), ("chinese", False),
    ("multi_cased", True)])
def test_case_of_real_vocabularies(shared, caplog, name, cased):
  path = shared / "data" / "vocab" / name / "vocab.txt"
  content = path.read_bytes()
  fitting, other = (LOWER, CASED) if not cased else (CASED, LOWER)
  # U+2028 in the Chinese one is an entry, no blank line.
  assert not warnings_of(caplog, vocabulary.check, content, "v", fitting)
  if cased:
    with pytest.raises(UserError, match="pass --do_lower_case=False"):
      vocabulary.check(content, "v", other)
    other = vocabulary.Case(True, True)
  assert len(warnings_of(caplog, vocabulary.check, content, "v", other)) == 1


def test_case_of_small_vocabularies():
  assert vocabulary.is_cased(world.VOCAB) is False
  assert vocabulary.is_cased(["[CLS]", "<S>", "\u4e2d", "1"]) is None
  assert vocabulary.is_cased(["[CLS]", "The", "the"]) is True


@pytest.mark.parametrize("change", [
    lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text,
    lambda text: text.rstrip("\n"), lambda text: text + "\n\n"],
                         ids=["windows", "mark", "no end", "blank end"])
def test_harmless_forms_of_a_vocabulary(folder, tmp_path, caplog, change):
  config = modeling.BertConfig.from_dict(world.CONFIG)
  text = (folder / "model" / "vocab.txt").read_text()
  path = str(tmp_path / "vocab.txt")
  pathlib.Path(path).write_bytes(change(text).encode("utf-8"))
  assert not warnings_of(caplog, model_files.check_vocabulary, path, config,
                         LOWER)
  tokenizer = model_files.load_tokenizer(path, True, config)
  assert tokenizer.convert_tokens_to_ids(["[PAD]", "boat"]) == [
      0, world.VOCAB.index("boat")]


@pytest.mark.parametrize("entries, message", [
    (world.VOCAB + ["the", "boat"], "2 entries come more than once, in lines"),
    (world.VOCAB[:6] + [""] + world.VOCAB[6:], "blank in line 7: each counts"),
    (["the"] + world.VOCAB[1:-5], "line 1 is 'the', where BERT has [PAD]")])
def test_odd_lines_of_a_vocabulary(caplog, entries, message):
  found = warnings_of(caplog, check_entries, entries)
  assert len(found) == 1 and message in found[0]


def test_case_31_size_of_the_vocabulary(shared, monkeypatch, caplog):
  monkeypatch.chdir(shared / "cases" / "31-vocab-config-mismatch")
  config = model_files.read_bert_config("../_shared/bert_config.json")
  found = warnings_of(caplog, model_files.check_vocabulary, "vocab_shorter.txt",
                      config, LOWER)
  assert len(found) == 1 and "are never used" in found[0]
  with pytest.raises(UserError, match="vocab_two_more.txt has 160 entries, but "
                     "bert_config.json says vocab_size 158"):
    model_files.check_vocabulary("vocab_two_more.txt", config, LOWER)


# Configuration.


def parse(**changes):
  return config_checks.parse(
      json.dumps(dict(world.CONFIG, **changes)).encode("utf-8"), "c")


def test_settings_that_are_right(caplog):
  assert not warnings_of(caplog, lambda: parse(
      directionality="bidi", pooler_type="first_token_transform",
      model_type="bert", hidden_act=None))
  text = b"\xef\xbb\xbf" + json.dumps(world.CONFIG).encode("utf-8")
  assert config_checks.parse(text, "c") == world.CONFIG


def test_settings_that_are_odd(caplog):
  assert warnings_of(caplog, lambda: parse(colour="red")) == [
      "--bert_config_file=c: keys without effect here: colour."]
  settings = dict(world.CONFIG)
  del settings["type_vocab_size"]
  assert "type_vocab_size not in it" in warnings_of(
      caplog, config_checks.parse, json.dumps(settings).encode(), "c")[0]


@pytest.mark.parametrize("changes", [
    dict(vocab_size=True), dict(hidden_size=8.0), dict(hidden_size=None),
    dict(num_hidden_layers="2"), dict(hidden_dropout_prob=float("nan")),
    dict(attention_probs_dropout_prob=1), dict(initializer_range=0),
    dict(hidden_act=["gelu"]), dict(hidden_act="swish"),
    dict(position_embedding_type="relative_key")])
def test_settings_that_are_wrong(changes):
  key, = changes
  with pytest.raises(UserError, match="\"%s\" is .*, wanted" % key):
    parse(**changes)


def test_all_wrong_settings_are_named():
  with pytest.raises(UserError) as caught:
    parse(hidden_size="8", num_hidden_layers=0, hidden_act="gelu_new")
  for text in ("hidden_size", "num_hidden_layers", "gelu_new"):
    assert text in str(caught.value)


def test_deeply_nested_json():
  with pytest.raises(UserError, match="not JSON"):
    config_checks.parse(b"[" * 200000, "c")


# Checkpoint.


def test_variables_are_those_of_the_model(folder):
  config = modeling.BertConfig.from_dict(world.CONFIG)
  with tf.Graph().as_default():
    modeling.BertModel(config, False, tf.zeros([1, 4], tf.int32))
    built = {var.name[:-2]: tuple(var.shape.as_list())
             for var in tf.trainable_variables()}
  assert built == dict(variable_shapes.variable_shapes(world.CONFIG))


def test_a_folder_stands_for_its_checkpoint(folder, tmp_path):
  wanted = str(folder / "model" / "bert_model.ckpt")
  assert checkpoint_files.resolve(str(folder / "model")) == wanted
  assert checkpoint_files.resolve(str(folder / "model") + "/") == wanted
  assert checkpoint_files.resolve(wanted) == wanted
  assert checkpoint_files.resolve(None) is None
  for step in (1, 2):
    world.save(tmp_path / ("model.ckpt-%d" % step), {"x": (2,)})
  tf.train.update_checkpoint_state(str(tmp_path), "model.ckpt-1",
                                   ["model.ckpt-2", "model.ckpt-1"])
  newest = str(tmp_path / "model.ckpt-1")
  assert checkpoint_files.resolve(str(tmp_path)) == newest


def test_a_missing_part_of_several(folder, tmp_path):
  for name, suffix in ((".index", ".index"),
                       (".data-00000-of-00001", ".data-00000-of-00002")):
    (tmp_path / ("x.ckpt" + suffix)).write_bytes(
        (folder / "model" / ("bert_model.ckpt" + name)).read_bytes())
  with pytest.raises(UserError, match="part 2 of 2 is missing"):
    checkpoint_files.resolve(str(tmp_path / "x.ckpt"))


def test_models_that_are_used_in_part(folder, caplog):
  fewer = modeling.BertConfig.from_dict(dict(world.CONFIG, num_hidden_layers=1))
  path = str(folder / "model" / "bert_model.ckpt")
  found = warnings_of(
      caplog, initial_checkpoint.check_init_checkpoint, path, fewer)
  assert "has 2 encoder layers, but only the first 1 are used" in found[0]


def test_a_model_without_pooler_passes(tmp_path):
  shapes = {name: shape for name, shape in variable_shapes.variable_shapes(
      world.CONFIG).items() if "pooler" not in name}
  world.save(tmp_path / "x.ckpt", shapes)
  config = modeling.BertConfig.from_dict(world.CONFIG)
  path = str(tmp_path / "x.ckpt")
  assert initial_checkpoint.check_init_checkpoint(path, config) == path


def test_all_shapes_are_in_one_message():
  with pytest.raises(UserError) as caught:
    initial_checkpoint.check_shapes("c", {"a": [2], "bert/layer_0/b": [3],
                                   "bert/layer_1/b": [3], "new": [1]},
                             {"a": [1], "bert/layer_0/b": [4],
                              "bert/layer_1/b": [4], "old": [5]})
  text = str(caught.value)
  assert "3 variables have other shapes" in text
  assert "  a: [1] in the checkpoint, [2] in the model\n" in text
  assert "layer_N/b: [4] in the checkpoint, [3] in the model (2 l" in text


@pytest.mark.parametrize("path", ["../_shared", "../_shared/bert_model.ckpt"])
def test_case_50_right_forms(shared, monkeypatch, path):
  monkeypatch.chdir(shared / "cases" / "50-init-checkpoint-path-forms")
  config = model_files.read_bert_config("../_shared/bert_config.json")
  assert initial_checkpoint.check_init_checkpoint(path, config) == (
      "../_shared/bert_model.ckpt")


@pytest.mark.parametrize("path, message", [
    ("../_shared/bert_model.ckpt.index", "pass ../_shared/bert_model.ckpt."),
    ("../_shared/bert_model.ckpt.data-00000-of-00001",
     "pass ../_shared/bert_model.ckpt."),
    ("../_shared/missing.ckpt", "did you mean ../_shared/bert_model.ckpt?"),
    ("../_shared/bert_config.json", "did you mean ../_shared/bert_model.ckpt?"),
    ("../50-init-checkpoint-path-forms", "holds cmd.txt")])
def test_case_50_wrong_forms(shared, monkeypatch, path, message):
  monkeypatch.chdir(shared / "cases" / "50-init-checkpoint-path-forms")
  with pytest.raises(UserError) as caught:
    checkpoint_files.resolve(path)
  assert message in str(caught.value)


# Kinds of files.


@pytest.mark.parametrize("path, content, kind", [
    ("a.gz", b"\x1f\x8b\x08\0", "a gzip archive"),
    ("a.zip", b"PK\x03\x04\0", "a zip archive"),
    ("a.bin", b"PK\x03\x04\0", "PyTorch weights"),
    ("a.h5", b"\x89HDF\r\n", "an HDF5 file of Keras"),
    ("a.index", b"x\0", "a part of a checkpoint"),
    ("a", b"\0\1\2", "a binary file"),
    ("a.index", b"text", None), ("vocab.txt", b"[PAD]\n", None),
    ("a", b"", None)])
def test_kinds(path, content, kind):
  assert file_kinds.describe(path, content) == kind


def test_records_are_told_from_text(folder, tmp_path):
  file_kinds.check_record_file(str(folder / "rows.tfrecord"), "input_file")
  path = tmp_path / "empty"
  path.write_bytes(b"")
  file_kinds.check_record_file(str(path), "input_file")
  path.write_bytes(b"one line of text that is long enough")
  with pytest.raises(UserError, match="is text, wanted TFRecord"):
    file_kinds.check_record_file(str(path), "input_file")


def test_a_corpus_may_be_empty_and_have_nul_characters(tmp_path):
  path = tmp_path / "corpus"
  for content in (b"", b"the \0 boat\n"):
    path.write_bytes(content)
    file_kinds.check_text_file(str(path), "input_file", "text", is_corpus=True)
