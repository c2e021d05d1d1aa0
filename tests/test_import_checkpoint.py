"""scripts/import_checkpoint.py on a small made-up Hugging Face BERT."""
import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow.compat.v1 as tf

import import_checkpoint
import modeling

CONFIG = {
    "model_type": "bert", "vocab_size": 11, "hidden_size": 6,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 10,
    "hidden_act": "relu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 9,
    "type_vocab_size": 2, "initializer_range": 0.02}
VOCAB = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n"


def tensors(seed=0):
  """Random weights under Hugging Face's names, without a prefix."""
  random = np.random.RandomState(seed)
  width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
  shapes = {
      "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], width),
      "embeddings.position_embeddings.weight": (9, width),
      "embeddings.token_type_embeddings.weight": (2, width),
      "pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
  norms = ["embeddings"]
  for index in range(CONFIG["num_hidden_layers"]):
    layer = "encoder.layer.%d." % index
    for name, rows, columns in (
        ("attention.self.query", width, width),
        ("attention.self.key", width, width),
        ("attention.self.value", width, width),
        ("attention.output.dense", width, width),
        ("intermediate.dense", inner, width), ("output.dense", width, inner)):
      shapes[layer + name + ".weight"] = (rows, columns)
      shapes[layer + name + ".bias"] = (rows,)
    norms += [layer + "attention.output", layer + "output"]
  for name in norms:
    shapes[name + ".LayerNorm.weight"] = (width,)
    shapes[name + ".LayerNorm.bias"] = (width,)
  return {name: random.normal(size=shape).astype(np.float32)
          for name, shape in shapes.items()}


def head_tensors():
  """The heads of BertForPreTraining."""
  width, vocab_size = CONFIG["hidden_size"], CONFIG["vocab_size"]
  transform = "cls.predictions.transform."
  shapes = {
      "cls.predictions.bias": (vocab_size,),
      transform + "dense.weight": (width, width),
      transform + "dense.bias": (width,),
      transform + "LayerNorm.weight": (width,),
      transform + "LayerNorm.bias": (width,),
      "cls.seq_relationship.weight": (2, width),
      "cls.seq_relationship.bias": (2,)}
  random = np.random.RandomState(1)
  return {name: random.normal(size=shape).astype(np.float32)
          for name, shape in shapes.items()}


def write(folder, arrays, config=None, vocab=VOCAB):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config or CONFIG))
  (folder / "vocab.txt").write_text(vocab)
  safetensors.numpy.save_file(arrays, str(folder / "model.safetensors"))
  return folder


def run(source, output):
  return import_checkpoint.main(
      ["--input_dir=%s" % source, "--output_dir=%s" % output])


def refused(capsys, source, output):
  """Runs an import that must fail; returns its message."""
  assert run(source, output) == 1
  assert not output.exists(), "something was written before the check"
  return capsys.readouterr().err


def layer_norm(x, gamma, beta):
  mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
  return (x - mean) / np.sqrt(variance + 1e-12) * gamma + beta


def expected_output(weights, ids):
  """Hugging Face's formulas (y = x W^T + b) in float64."""
  w = {name: array.astype(np.float64) for name, array in weights.items()}

  def dense(x, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]

  def normed(x, name):
    return layer_norm(x, w[name + ".LayerNorm.weight"],
                      w[name + ".LayerNorm.bias"])

  x = normed(w["embeddings.word_embeddings.weight"][ids] +
             w["embeddings.position_embeddings.weight"][:len(ids)] +
             w["embeddings.token_type_embeddings.weight"][0], "embeddings")
  for index in range(CONFIG["num_hidden_layers"]):
    layer = "encoder.layer.%d." % index
    query, key, value = (
        dense(x, layer + "attention.self." + part).reshape(len(ids), 2, 3)
        for part in ("query", "key", "value"))
    scores = np.exp(np.einsum("fhd,thd->hft", query, key) / np.sqrt(3))
    scores /= scores.sum(-1, keepdims=True)
    context = np.einsum("hft,thd->fhd", scores, value).reshape(len(ids), 6)
    x = normed(x + dense(context, layer + "attention.output.dense"),
               layer + "attention.output")
    inner = np.maximum(dense(x, layer + "intermediate.dense"), 0)
    x = normed(x + dense(inner, layer + "output.dense"), layer + "output")
  return x, np.tanh(dense(x[0], "pooler.dense"))


def test_outputs_are_the_source_models(tmp_path, capsys):
  weights = tensors()
  source = write(tmp_path / "hf", weights)
  assert run(source, tmp_path / "out") == 0
  assert "BertModel loads 39 of 39 variables" in capsys.readouterr().out
  ids = [2, 5, 9, 10, 3]
  prefix = str(tmp_path / "out" / "bert_model.ckpt")
  config = modeling.BertConfig.from_json_file(
      str(tmp_path / "out" / "bert_config.json"))
  with tf.Graph().as_default(), tf.Session() as session:
    model = modeling.BertModel(config, is_training=False,
                               input_ids=tf.constant([ids], tf.int32))
    assignment, _ = modeling.get_assignment_map_from_checkpoint(
        tf.trainable_variables(), prefix)
    tf.train.init_from_checkpoint(prefix, assignment)
    session.run(tf.global_variables_initializer())
    sequence, pooled = session.run(
        [model.get_sequence_output(), model.get_pooled_output()])
  wanted_sequence, wanted_pooled = expected_output(weights, ids)
  np.testing.assert_allclose(sequence[0], wanted_sequence, atol=2e-5)
  np.testing.assert_allclose(pooled[0], wanted_pooled, atol=2e-5)


def test_old_names_and_prefix_give_the_same_checkpoint(tmp_path):
  plain = write(tmp_path / "plain", tensors())
  old = {"bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
      "LayerNorm.bias", "LayerNorm.beta"): array
         for name, array in tensors().items()}
  assert run(plain, tmp_path / "out") == 0
  assert run(write(tmp_path / "old", old), tmp_path / "out_old") == 0
  left = tf.train.load_checkpoint(str(tmp_path / "out"))
  right = tf.train.load_checkpoint(str(tmp_path / "out_old"))
  names = left.get_variable_to_shape_map()
  assert names == right.get_variable_to_shape_map()
  assert "bert/encoder/layer_1/output/LayerNorm/gamma" in names
  for name in names:
    np.testing.assert_array_equal(left.get_tensor(name),
                                  right.get_tensor(name))


def test_heads_are_mapped(tmp_path):
  heads = head_tensors()
  arrays = {"bert." + name: array for name, array in tensors().items()}
  arrays.update(heads)
  arrays["cls.predictions.decoder.weight"] = arrays[
      "bert.embeddings.word_embeddings.weight"].copy()
  arrays["qa_outputs.weight"] = np.ones((2, 6), np.float32)
  arrays["qa_outputs.bias"] = np.ones(2, np.float32)
  assert run(write(tmp_path / "hf", arrays), tmp_path / "out") == 0
  reader = tf.train.load_checkpoint(str(tmp_path / "out"))
  found = {name for name in reader.get_variable_to_shape_map()
           if name.startswith("cls/")}
  assert found == {
      "cls/predictions/output_bias",
      "cls/predictions/transform/dense/kernel",
      "cls/predictions/transform/dense/bias",
      "cls/predictions/transform/LayerNorm/gamma",
      "cls/predictions/transform/LayerNorm/beta",
      "cls/seq_relationship/output_weights",
      "cls/seq_relationship/output_bias",
      "cls/squad/output_weights", "cls/squad/output_bias"}
  np.testing.assert_array_equal(
      reader.get_tensor("cls/predictions/transform/dense/kernel"),
      heads["cls.predictions.transform.dense.weight"].T)
  np.testing.assert_array_equal(
      reader.get_tensor("cls/seq_relationship/output_weights"),
      heads["cls.seq_relationship.weight"])


def test_says_what_was_left_out_and_what_is_missing(tmp_path, capsys):
  arrays = {name: array for name, array in tensors().items()
            if not name.startswith("pooler")}
  arrays["embeddings.position_ids"] = np.arange(9).reshape(1, 9)
  config = dict(CONFIG, hidden_act="gelu", layer_norm_eps=1e-5)
  source = write(tmp_path / "hf", arrays, config, VOCAB.replace("e\nf\n", ""))
  (source / "tokenizer_config.json").write_text('{"do_lower_case": false}')
  assert run(source, tmp_path / "out") == 0
  output = capsys.readouterr().out
  assert "left out, no such variable here: embeddings.position_ids" in output
  assert "bert/pooler/dense/kernel, bert/pooler/dense/bias" in output
  assert "BertModel loads 37 of 39 variables" in output
  assert "less than 5e-4" in output
  assert "layer_norm_eps is 1e-05" in output
  assert "rows 9 to 10" in output
  assert "--do_lower_case=False" in output
  assert json.loads((tmp_path / "out" / "bert_config.json").read_text()) == {
      key: value for key, value in config.items()
      if key not in ("model_type", "layer_norm_eps")}


def test_an_untied_decoder_is_named(tmp_path, capsys):
  arrays = tensors()
  arrays["cls.predictions.decoder.weight"] = np.zeros((11, 6), np.float32)
  assert run(write(tmp_path / "hf", arrays), tmp_path / "out") == 0
  assert "decoder.weight is not the word embedding" in capsys.readouterr().out


def test_half_precision_becomes_float32(tmp_path):
  arrays = {name: array.astype(np.float16)
            for name, array in tensors().items()}
  assert run(write(tmp_path / "hf", arrays), tmp_path / "out") == 0
  reader = tf.train.load_checkpoint(str(tmp_path / "out"))
  value = reader.get_tensor("bert/pooler/dense/kernel")
  assert value.dtype == np.float32
  np.testing.assert_array_equal(
      value, arrays["pooler.dense.weight"].T.astype(np.float32))


def test_the_model_is_found_below_a_package_folder(tmp_path, monkeypatch):
  package = tmp_path / "site" / "some_bert_package"
  write(package / "model", tensors())
  (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
  monkeypatch.syspath_prepend(str(tmp_path / "site"))
  assert import_checkpoint.main(
      ["--package=some_bert_package", "--output_dir=%s" % (tmp_path / "out")
       ]) == 0
  assert (tmp_path / "out" / "bert_model.ckpt.index").exists()


@pytest.mark.parametrize("change, wanted", [
    ({"model_type": "roberta"}, "model_type is 'roberta', only 'bert'"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ({"hidden_act": "swish"}, "hidden_act is 'swish', wanted one of gelu"),
    ({"intermediate_size": 12}, "has the shape [10], but config.json"),
    ({"num_hidden_layers": 3}, "lacks 16 of the model's variables"),
])
def test_a_model_that_does_not_fit_is_refused(tmp_path, capsys, change, wanted):
  source = write(tmp_path / "hf", tensors(), dict(CONFIG, **change))
  assert wanted in refused(capsys, source, tmp_path / "out")


def test_a_config_without_a_key_is_refused(tmp_path, capsys):
  config = {key: value for key, value in CONFIG.items()
            if key != "hidden_size"}
  source = write(tmp_path / "hf", tensors(), config)
  assert "hidden_size missing" in refused(capsys, source, tmp_path / "out")


def test_a_square_kernel_of_another_size_names_the_tensor(tmp_path, capsys):
  arrays = tensors()
  arrays["encoder.layer.1.output.dense.weight"] = np.zeros((10, 6), np.float32)
  message = refused(capsys, write(tmp_path / "hf", arrays), tmp_path / "out")
  assert "encoder.layer.1.output.dense.weight has the shape [10, 6]" in message


def test_a_name_that_comes_twice_is_refused(tmp_path, capsys):
  arrays = tensors()
  arrays["bert.pooler.dense.bias"] = np.zeros(6, np.float32)
  message = refused(capsys, write(tmp_path / "hf", arrays), tmp_path / "out")
  assert "bert/pooler/dense/bias twice" in message


def test_a_vocabulary_larger_than_the_table_is_refused(tmp_path, capsys):
  source = write(tmp_path / "hf", tensors(), vocab=VOCAB + "g\n")
  message = refused(capsys, source, tmp_path / "out")
  assert "has 12 entries" in message and "only 11 rows" in message


def test_damaged_and_absent_files_are_refused(tmp_path, capsys):
  source, output = write(tmp_path / "hf", tensors()), tmp_path / "out"
  weights = source / "model.safetensors"
  data = weights.read_bytes()
  weights.write_bytes(data[:200])
  assert "not a complete safetensors" in refused(capsys, source, output)
  weights.write_bytes(data)
  (source / "config.json").write_text("{")
  assert "config.json is not valid JSON" in refused(capsys, source, output)
  (source / "vocab.txt").unlink()
  assert "no vocab.txt" in refused(capsys, source, output)
  weights.unlink()
  assert "safe_serialization=True" in refused(capsys, source, output)
  assert "not a folder" in refused(capsys, tmp_path / "none", output)


def test_bfloat16_is_refused_with_the_remedy(tmp_path, capsys):
  source = write(tmp_path / "hf", tensors())
  weights = source / "model.safetensors"
  # One type is two bytes wide like the other: only the header tells.
  safetensors.numpy.save_file(
      {"a": np.zeros(2, np.float16)}, str(weights))
  weights.write_bytes(weights.read_bytes().replace(b'"F16"', b'"BF16"').replace(
      b" ", b"", 1))
  assert "save the model again as float32" in refused(
      capsys, source, tmp_path / "out")


def test_two_models_in_one_folder_must_be_told_apart(tmp_path, capsys):
  write(tmp_path / "hf" / "one", tensors())
  write(tmp_path / "hf" / "two", tensors())
  message = refused(capsys, tmp_path / "hf", tmp_path / "out")
  assert "holds 2 models" in message


def test_an_absent_package_is_refused(tmp_path, capsys):
  assert import_checkpoint.main(
      ["--package=no_such_bert", "--output_dir=%s" % tmp_path]) == 1
  assert "--package=no_such_bert is not an installed" in capsys.readouterr().err
