"""The model against reference outputs (see ../shared/golden/README.md)."""
import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling

FORWARD = ["tiny", "tiny_onehot", "strong", "strong_onehot", "strong_edge",
           "strong_defaults", "strong_relu", "strong_tanh", "strong_linear"]


def run_forward(folder, name):
  """Runs BertModel on the inputs of a golden file; returns (golden, mine)."""
  golden = np.load(str(folder / "forward_{}.npz".format(name)),
                   allow_pickle=False)
  variant = name.split("_")[-1]
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  if variant in ("relu", "tanh", "linear"):
    config.hidden_act = variant
  checkpoint = str(folder / ("bert_model.ckpt" if name.startswith("tiny")
                             else "strong.ckpt"))
  defaults = variant == "defaults"
  with tf.Graph().as_default():
    model = modeling.BertModel(
        config, is_training=False,
        input_ids=tf.constant(golden["input_ids"]),
        input_mask=None if defaults else tf.constant(golden["input_mask"]),
        token_type_ids=(None if defaults
                        else tf.constant(golden["segment_ids"])),
        use_one_hot_embeddings=variant == "onehot")
    assignment, _ = modeling.get_assignment_map_from_checkpoint(
        tf.trainable_variables(), checkpoint)
    assert len(assignment) == len(tf.trainable_variables())
    tf.train.init_from_checkpoint(checkpoint, assignment)
    outputs = {
        "embedding_output": model.get_embedding_output(),
        "sequence_output": model.get_sequence_output(),
        "pooled_output": model.get_pooled_output()}
    for i, layer in enumerate(model.get_all_encoder_layers()):
      outputs["encoder_layer_%d" % i] = layer
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      return golden, session.run(outputs)


@pytest.mark.parametrize("name", FORWARD)
def test_forward_equals_the_reference(shared, name):
  golden, mine = run_forward(shared / "golden" / "model", name)
  for key, value in mine.items():
    error = np.abs(value - golden[key])
    if name == "strong_edge":
      # Row 2 is masked entirely: its scores are rounded to steps of 1/1024.
      assert error[2].max() < 2e-3, key
      error = np.delete(error, 2, axis=0)
    assert error.max() < 1e-5, key


def test_gelu_and_its_gradient(shared):
  golden = np.load(str(shared / "golden" / "model" / "gelu.npz"))
  with tf.Graph().as_default(), tf.Session() as session:
    x = tf.constant(golden["x"])
    y = modeling.gelu(x)
    value, gradient = session.run([y, tf.gradients(y, x)[0]])
  np.testing.assert_allclose(value, golden["gelu"], atol=2e-6, rtol=1e-6)
  # The reference gradient is itself up to 4e-6 from the float64 one.
  np.testing.assert_allclose(gradient, golden["gelu_gradient"], atol=1e-5,
                             rtol=1e-5)


def test_attention_mask(shared):
  golden = np.load(str(shared / "golden" / "model" / "attention_mask.npz"))
  with tf.Graph().as_default(), tf.Session() as session:
    mask = session.run(modeling.create_attention_mask_from_input_mask(
        tf.constant(golden["from_tensor"]), tf.constant(golden["to_mask"])))
  np.testing.assert_array_equal(mask, golden["mask"])


def test_assignment_map(shared):
  folder = shared / "golden" / "model"
  golden = json.loads((folder / "assignment_map.json").read_text())
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  with tf.Graph().as_default():
    modeling.BertModel(config, False, tf.zeros([2, 4], tf.int32))
    tf.get_variable("output_weights", [3, 16])
    tf.get_variable("output_bias", [3])
    assignment, names = modeling.get_assignment_map_from_checkpoint(
        tf.trainable_variables(), str(folder / "bert_model.ckpt"))
  assert [list(pair) for pair in assignment.items()] == [
      list(pair) for pair in golden["assignment_map"]]
  assert sorted(names) == golden["initialized_variable_names"]


def test_config_round_trip(tmp_path):
  config = modeling.BertConfig(vocab_size=99, hidden_size=37)
  path = tmp_path / "config.json"
  path.write_text(config.to_json_string())
  again = modeling.BertConfig.from_json_file(str(path))
  assert again.to_dict() == config.to_dict()
  assert again.hidden_size == 37 and again.type_vocab_size == 16


def test_dropout_only_in_training():
  config = modeling.BertConfig(vocab_size=9, hidden_size=8,
                               num_hidden_layers=1, num_attention_heads=2,
                               intermediate_size=8)
  for is_training in (True, False):
    with tf.Graph().as_default(), tf.Session() as session:
      model = modeling.BertModel(config, is_training, tf.ones([2, 4], tf.int32))
      session.run(tf.global_variables_initializer())
      a = session.run(model.get_sequence_output())
      b = session.run(model.get_sequence_output())
      assert np.array_equal(a, b) != is_training


@pytest.mark.parametrize("change, message", [
    (dict(hidden_size=10, num_attention_heads=4), "multiple of"),
    (dict(max_position_embeddings=3), "4 tokens.*3 positions"),
    (dict(hidden_act="swish"), "Unsupported activation \"swish\""),
])
def test_errors_name_both_values(change, message):
  values = dict(vocab_size=9, hidden_size=8, num_hidden_layers=1,
                num_attention_heads=2, intermediate_size=8)
  values.update(change)
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    modeling.BertModel(modeling.BertConfig(**values), False,
                       tf.ones([2, 4], tf.int32))


def test_rank_error_names_ranks():
  with tf.Graph().as_default(), pytest.raises(ValueError, match="rank 1"):
    modeling.get_shape_list(tf.zeros([3]), expected_rank=[2, 3], name="x")
