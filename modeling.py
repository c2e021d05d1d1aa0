"""The BERT model: configuration, embeddings, transformer, pooler.

Public names, arguments, defaults and variable names are those of
google-research/bert, so that its checkpoints and users' own scripts work
unchanged. Nothing in here knows about devices, tasks or flags.

Shapes in comments: B = batch, F = "from" length, T = "to" length, N = heads,
H = width of a head.

Reference: Devlin et al., "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", https://arxiv.org/abs/1810.04805.
"""
import collections
import copy
import json
import math
import re
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import tensorflow.compat.v1 as tf

# float32 cannot tell it from 0 on ordinary activations; kept as in the
# published models.
LAYER_NORM_EPSILON = 1e-12
# Added to the score of a masked position before the softmax. A finite number:
# a row whose positions are all masked keeps a uniform softmax instead of NaN.
MASKED_SCORE = -10000.0

Activation = Optional[Callable[[tf.Tensor], tf.Tensor]]


class BertConfig:
  """Shape and regularisation of a BERT model."""

  def __init__(self,
               vocab_size,
               hidden_size=768,
               num_hidden_layers=12,
               num_attention_heads=12,
               intermediate_size=3072,
               hidden_act="gelu",
               hidden_dropout_prob=0.1,
               attention_probs_dropout_prob=0.1,
               max_position_embeddings=512,
               type_vocab_size=16,
               initializer_range=0.02):
    """Args:

      vocab_size: number of entries of the vocabulary.
      hidden_size: width of the encoder layers and the pooler.
      num_hidden_layers: number of encoder layers.
      num_attention_heads: heads per layer; divides hidden_size.
      intermediate_size: width of the feed-forward layer.
      hidden_act: activation of feed-forward layers, see `get_activation`.
      hidden_dropout_prob: dropout of embeddings and layer outputs.
      attention_probs_dropout_prob: dropout of the attention probabilities.
      max_position_embeddings: longest sequence the model can take.
      type_vocab_size: number of segment ids.
      initializer_range: standard deviation of the weights' initialiser.
    """
    self.vocab_size = vocab_size
    self.hidden_size = hidden_size
    self.num_hidden_layers = num_hidden_layers
    self.num_attention_heads = num_attention_heads
    self.hidden_act = hidden_act
    self.intermediate_size = intermediate_size
    self.hidden_dropout_prob = hidden_dropout_prob
    self.attention_probs_dropout_prob = attention_probs_dropout_prob
    self.max_position_embeddings = max_position_embeddings
    self.type_vocab_size = type_vocab_size
    self.initializer_range = initializer_range

  @classmethod
  def from_dict(cls, json_object: Dict[str, Any]) -> "BertConfig":
    """Builds a configuration from a dictionary; unknown keys are kept."""
    config = cls(vocab_size=None)
    for key, value in json_object.items():
      setattr(config, key, value)
    return config

  @classmethod
  def from_json_file(cls, json_file: str) -> "BertConfig":
    """Reads `bert_config.json`, from any file system TensorFlow knows."""
    with tf.io.gfile.GFile(json_file, "r") as reader:
      return cls.from_dict(json.loads(reader.read()))

  def to_dict(self) -> Dict[str, Any]:
    """Returns a deep copy of all settings."""
    return copy.deepcopy(self.__dict__)

  def to_json_string(self) -> str:
    """Returns the settings as sorted, indented JSON and a newline."""
    return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


class BertModel:
  """The BERT encoder.

  Usage:

      model = modeling.BertModel(config, is_training=True, input_ids=ids,
                                 input_mask=mask, token_type_ids=segment_ids)
      logits = tf.matmul(model.get_pooled_output(), label_embeddings)
  """

  def __init__(self,
               config,
               is_training,
               input_ids,
               input_mask=None,
               token_type_ids=None,
               use_one_hot_embeddings=False,
               scope=None):
    """Builds the graph.

    Args:
      config: `BertConfig`.
      is_training: False switches all dropout off.
      input_ids: int32 [batch_size, seq_length].
      input_mask: int32 [batch_size, seq_length], 1 = real token; all 1 if None.
      token_type_ids: int32 [batch_size, seq_length]; all 0 if None.
      use_one_hot_embeddings: look words up by a matrix product.
      scope: variable scope, "bert" if None.

    Raises:
      ValueError: a shape does not fit or the sequence is longer than
        `max_position_embeddings`.
    """
    config = copy.deepcopy(config)
    if not is_training:
      config.hidden_dropout_prob = 0.0
      config.attention_probs_dropout_prob = 0.0

    batch_size, seq_length = get_shape_list(input_ids, expected_rank=2)
    if input_mask is None:
      input_mask = tf.ones([batch_size, seq_length], tf.int32)
    if token_type_ids is None:
      token_type_ids = tf.zeros([batch_size, seq_length], tf.int32)

    with tf.variable_scope(scope, default_name="bert"):
      with tf.variable_scope("embeddings"):
        word_embeddings, self.embedding_table = embedding_lookup(
            input_ids=input_ids,
            vocab_size=config.vocab_size,
            embedding_size=config.hidden_size,
            initializer_range=config.initializer_range,
            word_embedding_name="word_embeddings",
            use_one_hot_embeddings=use_one_hot_embeddings)
        self.embedding_output = embedding_postprocessor(
            input_tensor=word_embeddings,
            use_token_type=True,
            token_type_ids=token_type_ids,
            token_type_vocab_size=config.type_vocab_size,
            token_type_embedding_name="token_type_embeddings",
            use_position_embeddings=True,
            position_embedding_name="position_embeddings",
            initializer_range=config.initializer_range,
            max_position_embeddings=config.max_position_embeddings,
            dropout_prob=config.hidden_dropout_prob)

      with tf.variable_scope("encoder"):
        # [B, 1, T] instead of [B, F, T]: every "from" position sees the same
        # mask, so it is left to broadcasting.
        attention_mask = tf.cast(tf.expand_dims(input_mask, 1), tf.float32)
        self.all_encoder_layers = transformer_model(
            input_tensor=self.embedding_output,
            attention_mask=attention_mask,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            intermediate_act_fn=get_activation(config.hidden_act),
            hidden_dropout_prob=config.hidden_dropout_prob,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            do_return_all_layers=True)
      self.sequence_output = self.all_encoder_layers[-1]

      with tf.variable_scope("pooler"):
        self.pooled_output = dense(
            self.sequence_output[:, 0, :], config.hidden_size,
            config.initializer_range, tf.tanh, name="dense")

  def get_pooled_output(self) -> tf.Tensor:
    """float32 [batch_size, hidden_size]: the first token, through tanh."""
    return self.pooled_output

  def get_sequence_output(self) -> tf.Tensor:
    """float32 [batch_size, seq_length, hidden_size]: the last layer."""
    return self.sequence_output

  def get_all_encoder_layers(self) -> List[tf.Tensor]:
    """One float32 [batch_size, seq_length, hidden_size] per layer."""
    return self.all_encoder_layers

  def get_embedding_output(self) -> tf.Tensor:
    """float32 [batch_size, seq_length, hidden_size]: input of layer 0."""
    return self.embedding_output

  def get_embedding_table(self) -> tf.Variable:
    """The word embeddings, float32 [vocab_size, hidden_size]."""
    return self.embedding_table


def gelu(x: tf.Tensor) -> tf.Tensor:
  """Gaussian error linear unit, in its tanh form.

  0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
  x sigmoid(2u): the same function with fewer operations.

  Source: https://arxiv.org/abs/1606.08415, section 2.
  """
  # Products, not tf.pow: pow is many times slower and the same number.
  scale = 2.0 * math.sqrt(2.0 / math.pi)
  return x * tf.sigmoid(x * (scale + (scale * 0.044715) * (x * x)))


def get_activation(activation_string: Any) -> Activation:
  """Maps "relu", "gelu", "tanh", "linear" or "" to a function, or None.

  Anything that is not a string is returned as it is.

  Raises:
    ValueError: unknown name.
  """
  if not isinstance(activation_string, str):
    return activation_string
  activations: Dict[str, Activation] = {
      "": None, "linear": None, "relu": tf.nn.relu, "gelu": gelu,
      "tanh": tf.tanh}
  name = activation_string.lower()
  if name not in activations:
    raise ValueError("Unsupported activation \"{}\": use one of {}.".format(
        activation_string, ", ".join(sorted(filter(None, activations)))))
  return activations[name]


def get_assignment_map_from_checkpoint(
    tvars, init_checkpoint: str
) -> Tuple["collections.OrderedDict[str, str]", Dict[str, int]]:
  """Pairs the variables of a checkpoint with those of the graph by name.

  Args:
    tvars: variables of the graph.
    init_checkpoint: path of the checkpoint, without .index or .data.

  Returns:
    (assignment map for `tf.train.init_from_checkpoint`, dictionary whose keys
    are the initialised names, each with and without ":0").
  """
  names = {re.sub(":\\d+$", "", var.name) for var in tvars}
  assignment_map: Any = collections.OrderedDict()
  initialized_variable_names = {}
  for name, _ in tf.train.list_variables(init_checkpoint):
    if name in names:
      assignment_map[name] = name
      initialized_variable_names[name] = 1
      initialized_variable_names[name + ":0"] = 1
  return assignment_map, initialized_variable_names


def dropout(input_tensor: tf.Tensor,
            dropout_prob: Optional[float]) -> tf.Tensor:
  """Sets elements to 0 with this probability and scales the rest up."""
  if not dropout_prob:
    return input_tensor
  return tf.nn.dropout(input_tensor, rate=dropout_prob)


def layer_norm(input_tensor: tf.Tensor,
               name: Optional[str] = None) -> tf.Tensor:
  """Layer normalisation over the last axis (variables `beta`, `gamma`)."""
  width = input_tensor.shape.as_list()[-1]
  with tf.variable_scope(name, default_name="LayerNorm"):
    beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
    mean = tf.reduce_mean(input_tensor, axis=-1, keepdims=True)
    centred = input_tensor - mean
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.rsqrt(variance + LAYER_NORM_EPSILON) * gamma + beta


def layer_norm_and_dropout(input_tensor: tf.Tensor, dropout_prob: float,
                           name: Optional[str] = None) -> tf.Tensor:
  """Layer normalisation, then dropout."""
  return dropout(layer_norm(input_tensor, name), dropout_prob)


def create_initializer(initializer_range: float = 0.02):
  """Normal distribution with this standard deviation, cut at two of them."""
  return tf.truncated_normal_initializer(stddev=initializer_range)


def dense(input_tensor: tf.Tensor, width: int, initializer_range: float,
           activation: Activation, name: str) -> tf.Tensor:
  """activation(input . kernel + bias) for a matrix input."""
  with tf.variable_scope(name):
    kernel = tf.get_variable(
        "kernel", [input_tensor.shape.as_list()[-1], width],
        initializer=create_initializer(initializer_range))
    bias = tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
    output = tf.nn.bias_add(tf.matmul(input_tensor, kernel), bias)
    return output if activation is None else activation(output)


def embedding_lookup(input_ids,
                     vocab_size,
                     embedding_size=128,
                     initializer_range=0.02,
                     word_embedding_name="word_embeddings",
                     use_one_hot_embeddings=False):
  """Looks words up.

  Args:
    input_ids: int32 [batch_size, seq_length] or [batch_size, seq_length, k].
    vocab_size: number of rows of the table.
    embedding_size: width of the table.
    initializer_range: standard deviation of the initialiser.
    word_embedding_name: variable name.
    use_one_hot_embeddings: matrix product with one-hot ids instead of a gather.

  Returns:
    (float32 [batch_size, seq_length, k * embedding_size], the table).
  """
  if input_ids.shape.ndims == 2:
    input_ids = tf.expand_dims(input_ids, axis=[-1])
  embedding_table = tf.get_variable(
      word_embedding_name, [vocab_size, embedding_size],
      initializer=create_initializer(initializer_range))

  flat_ids = tf.reshape(input_ids, [-1])
  if use_one_hot_embeddings:
    output = tf.matmul(tf.one_hot(flat_ids, vocab_size), embedding_table)
  else:
    # Of the value, not of the variable: after a gather from a variable
    # TensorFlow copies it for every read, as of the weight decay.
    output = tf.gather(tf.convert_to_tensor(embedding_table), flat_ids)
  input_shape = get_shape_list(input_ids)
  output = tf.reshape(
      output, input_shape[:-1] + [input_shape[-1] * embedding_size])
  return output, embedding_table


def embedding_postprocessor(input_tensor,
                            use_token_type=False,
                            token_type_ids=None,
                            token_type_vocab_size=16,
                            token_type_embedding_name="token_type_embeddings",
                            use_position_embeddings=True,
                            position_embedding_name="position_embeddings",
                            initializer_range=0.02,
                            max_position_embeddings=512,
                            dropout_prob=0.1):
  """Adds segment and position embeddings, then layer norm and dropout.

  Args:
    input_tensor: float32 [batch_size, seq_length, embedding_size].
    use_token_type: add segment embeddings.
    token_type_ids: int32 [batch_size, seq_length], needed for them.
    token_type_vocab_size: number of segment ids.
    token_type_embedding_name: variable name.
    use_position_embeddings: add position embeddings.
    position_embedding_name: variable name.
    initializer_range: standard deviation of the initialisers.
    max_position_embeddings: rows of the position table.
    dropout_prob: dropout of the output.

  Returns:
    float32, shape of `input_tensor`.

  Raises:
    ValueError: segment ids missing, or the sequence longer than the table.
  """
  batch_size, seq_length, width = get_shape_list(input_tensor, expected_rank=3)
  output = input_tensor

  if use_token_type:
    if token_type_ids is None:
      raise ValueError("`token_type_ids` is needed with use_token_type=True.")
    token_type_table = tf.get_variable(
        token_type_embedding_name, [token_type_vocab_size, width],
        initializer=create_initializer(initializer_range))
    # The table has a handful of rows: one-hot beats a gather, whose gradient
    # would be a scatter.
    one_hot_ids = tf.one_hot(
        tf.reshape(token_type_ids, [-1]), token_type_vocab_size)
    output += tf.reshape(
        tf.matmul(one_hot_ids, token_type_table),
        [batch_size, seq_length, width])

  if use_position_embeddings:
    if isinstance(seq_length, int) and seq_length > max_position_embeddings:
      raise ValueError(
          "The sequence has {} tokens, but the model has only {} positions "
          "(max_position_embeddings): use a max_seq_length of at most "
          "{}.".format(seq_length, max_position_embeddings,
                       max_position_embeddings))
    position_table = tf.get_variable(
        position_embedding_name, [max_position_embeddings, width],
        initializer=create_initializer(initializer_range))
    # Positions are 0 .. seq_length - 1 in every row: a slice, broadcast over
    # the batch, instead of a lookup.
    output += position_table[:seq_length]

  return layer_norm_and_dropout(output, dropout_prob)


def create_attention_mask_from_input_mask(from_tensor: tf.Tensor,
                                          to_mask: tf.Tensor) -> tf.Tensor:
  """Makes a 3D attention mask from a 2D mask.

  Args:
    from_tensor: [batch_size, from_seq_length, ...]; only its shape is used.
    to_mask: int32 [batch_size, to_seq_length].

  Returns:
    float32 [batch_size, from_seq_length, to_seq_length].
  """
  from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
  to_mask = tf.cast(tf.expand_dims(to_mask, 1), tf.float32)
  return tf.ones([from_shape[0], from_shape[1], 1], tf.float32) * to_mask


def attention_layer(from_tensor,
                    to_tensor,
                    attention_mask=None,
                    num_attention_heads=1,
                    size_per_head=512,
                    query_act=None,
                    key_act=None,
                    value_act=None,
                    attention_probs_dropout_prob=0.0,
                    initializer_range=0.02,
                    do_return_2d_tensor=False,
                    batch_size=None,
                    from_seq_length=None,
                    to_seq_length=None):
  """Multi-headed attention from `from_tensor` to `to_tensor`.

  Args:
    from_tensor: float32 [B, F, width] or [B * F, width].
    to_tensor: float32 [B, T, width] or [B * T, width].
    attention_mask: 0 / 1, broadcastable to [B, F, T]; 0 = do not attend.
    num_attention_heads: number of heads.
    size_per_head: width of a head.
    query_act, key_act, value_act: activations of the projections, or None.
    attention_probs_dropout_prob: dropout of the probabilities.
    initializer_range: standard deviation of the initialisers.
    do_return_2d_tensor: return [B * F, N * H] instead of [B, F, N * H].
    batch_size, from_seq_length, to_seq_length: needed with 2D input.

  Returns:
    float32 [B, F, N * H] or [B * F, N * H].

  Raises:
    ValueError: shapes that do not fit, or sizes missing.

  Source: Vaswani et al., https://arxiv.org/abs/1706.03762, section 3.2.
  """
  from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
  to_shape = get_shape_list(to_tensor, expected_rank=[2, 3])
  if len(from_shape) != len(to_shape):
    raise ValueError("from_tensor has rank {}, to_tensor {}: they must be "
                     "equal.".format(len(from_shape), len(to_shape)))
  if len(from_shape) == 3:
    batch_size, from_seq_length = from_shape[:2]
    to_seq_length = to_shape[1]
  elif batch_size is None or from_seq_length is None or to_seq_length is None:
    raise ValueError("Matrices need batch_size, from_seq_length and "
                     "to_seq_length.")

  width = num_attention_heads * size_per_head

  def project(tensor, seq_length, activation, name):
    projected = dense(reshape_to_matrix(tensor), width, initializer_range,
                       activation, name)
    heads = tf.reshape(projected, [batch_size, seq_length,
                                   num_attention_heads, size_per_head])
    return tf.transpose(heads, [0, 2, 1, 3])

  query = project(from_tensor, from_seq_length, query_act, "query")
  key = project(to_tensor, to_seq_length, key_act, "key")
  value = project(to_tensor, to_seq_length, value_act, "value")

  # Scaling the query (B*F*N*H numbers) is cheaper than the scores (B*N*F*T).
  scores = tf.matmul(query * (1.0 / math.sqrt(size_per_head)), key,
                     transpose_b=True)
  if attention_mask is not None:
    mask = tf.expand_dims(tf.cast(attention_mask, scores.dtype), axis=[1])
    scores += (1.0 - mask) * MASKED_SCORE
  probabilities = dropout(tf.nn.softmax(scores), attention_probs_dropout_prob)

  context = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])
  if do_return_2d_tensor:
    return tf.reshape(context, [batch_size * from_seq_length, width])
  return tf.reshape(context, [batch_size, from_seq_length, width])


def transformer_model(input_tensor,
                      attention_mask=None,
                      hidden_size=768,
                      num_hidden_layers=12,
                      num_attention_heads=12,
                      intermediate_size=3072,
                      intermediate_act_fn=gelu,
                      hidden_dropout_prob=0.1,
                      attention_probs_dropout_prob=0.1,
                      initializer_range=0.02,
                      do_return_all_layers=False):
  """The encoder of the Transformer.

  Args:
    input_tensor: float32 [batch_size, seq_length, hidden_size].
    attention_mask: broadcastable to [batch_size, seq_length, seq_length].
    hidden_size: width of the layers.
    num_hidden_layers: number of layers.
    num_attention_heads: heads per layer.
    intermediate_size: width of the feed-forward layer.
    intermediate_act_fn: its activation.
    hidden_dropout_prob: dropout of the layer outputs.
    attention_probs_dropout_prob: dropout of the attention probabilities.
    initializer_range: standard deviation of the initialisers.
    do_return_all_layers: return a list of all layers, not the last one.

  Returns:
    float32 [batch_size, seq_length, hidden_size], or a list of them.

  Raises:
    ValueError: heads do not divide the width, or the input has another width.
  """
  if hidden_size % num_attention_heads:
    raise ValueError("hidden_size {} is not a multiple of num_attention_heads "
                     "{}.".format(hidden_size, num_attention_heads))
  input_shape = get_shape_list(input_tensor, expected_rank=3)
  if input_shape[2] != hidden_size:
    raise ValueError("The input is {} wide, but hidden_size is {}: residual "
                     "sums need equal widths.".format(
                         input_shape[2], hidden_size))

  # Matrices all the way through: reshapes between layers would cost time.
  layer_input = reshape_to_matrix(input_tensor)
  layers = []
  for index in range(num_hidden_layers):
    with tf.variable_scope("layer_%d" % index):
      with tf.variable_scope("attention"):
        with tf.variable_scope("self"):
          attended = attention_layer(
              from_tensor=layer_input,
              to_tensor=layer_input,
              attention_mask=attention_mask,
              num_attention_heads=num_attention_heads,
              size_per_head=hidden_size // num_attention_heads,
              attention_probs_dropout_prob=attention_probs_dropout_prob,
              initializer_range=initializer_range,
              do_return_2d_tensor=True,
              batch_size=input_shape[0],
              from_seq_length=input_shape[1],
              to_seq_length=input_shape[1])
        attention_output = _residual_dense(
            attended, layer_input, initializer_range, hidden_dropout_prob)
      with tf.variable_scope("intermediate"):
        intermediate = dense(attention_output, intermediate_size,
                              initializer_range, intermediate_act_fn, "dense")
      layer_input = _residual_dense(
          intermediate, attention_output, initializer_range,
          hidden_dropout_prob)
      layers.append(layer_input)

  layers = [reshape_from_matrix(layer, input_shape) for layer in layers]
  return layers if do_return_all_layers else layers[-1]


def _residual_dense(input_tensor: tf.Tensor, residual: tf.Tensor,
                    initializer_range: float,
                    dropout_prob: float) -> tf.Tensor:
  """LayerNorm(residual + dropout(input . kernel + bias)), scope "output"."""
  with tf.variable_scope("output"):
    output = dense(input_tensor, residual.shape.as_list()[-1],
                    initializer_range, None, "dense")
    return layer_norm(dropout(output, dropout_prob) + residual)


def get_shape_list(tensor: tf.Tensor,
                   expected_rank: Union[None, int, List[int]] = None,
                   name: Optional[str] = None) -> List[Any]:
  """The shape, static where it is known, a scalar tensor where it is not.

  Raises:
    ValueError: the rank is not `expected_rank` (a number or a list of them).
  """
  if expected_rank is not None:
    assert_rank(tensor, expected_rank, name)
  shape = tensor.shape.as_list()
  if None in shape:
    dynamic = tf.shape(tensor)
    shape = [dynamic[i] if size is None else size
             for i, size in enumerate(shape)]
  return shape


def reshape_to_matrix(input_tensor: tf.Tensor) -> tf.Tensor:
  """Joins all axes but the last."""
  ndims = input_tensor.shape.ndims
  if ndims < 2:
    raise ValueError("A tensor of rank 2 or more is needed, its shape is "
                     "{}.".format(input_tensor.shape))
  if ndims == 2:
    return input_tensor
  return tf.reshape(input_tensor, [-1, input_tensor.shape.as_list()[-1]])


def reshape_from_matrix(output_tensor: tf.Tensor,
                        orig_shape_list: List[Any]) -> tf.Tensor:
  """Undoes `reshape_to_matrix`; the last axis may have another width."""
  if len(orig_shape_list) == 2:
    return output_tensor
  width = get_shape_list(output_tensor)[-1]
  return tf.reshape(output_tensor, orig_shape_list[:-1] + [width])


def assert_rank(tensor: tf.Tensor, expected_rank: Union[int, List[int]],
                name: Optional[str] = None) -> None:
  """Raises ValueError if the rank is not (one of) `expected_rank`."""
  ranks = ([expected_rank] if isinstance(expected_rank, int)
           else list(expected_rank))
  if tensor.shape.ndims not in ranks:
    raise ValueError(
        "Tensor {} in scope \"{}\" has rank {} (shape {}), wanted rank "
        "{}.".format(name or tensor.name, tf.get_variable_scope().name,
                     tensor.shape.ndims, tensor.shape,
                     " or ".join(map(str, ranks))))
